// SPDX-License-Identifier: Apache-2.0
// Every e4m3 code, as an element of a and of b, comes out of every kernel of the CPU with its exact
// value: each is multiplied by one, among zeros, at a k of its own.
#include "../shared/fp8.h"
#include "gemm_test_case.h"

#include <math.h>

enum { CODES = 256, K = 256, FEW = 6, FORMS = 3 }; // FEW: ones beside the codes
enum { ALONG_K, ACROSS, PACKED };

static alignas(64) uint8_t codes[CODES * K], ones[FEW * K], packed[CODES * K];
static float d[CODES * CODES];

/** Returns the k at which a code stands. */
static int64_t place(int64_t code) {
    return code * 37 % K;
}

static void fill(uint8_t one) {
    memset(codes, 0, sizeof codes);
    memset(ones, one, sizeof ones);
    for (int64_t n = 0; n < CODES; n++)
        codes[n * K + place(n)] = (uint8_t)n;
}

/** Writes rows of K codes to `packed` in a form of b. */
static void put(const uint8_t *rows, int64_t n, int form) {
    memset(packed, 0, sizeof packed);
    for (int64_t i = 0; i < n * K; i++) {
        const int64_t row = i / K, k = i % K;
        packed[form == ACROSS ? k * n + row : qni_gemm_packed_offset(device, K, row, k)] = rows[i];
    }
}

/** Multiplies m rows of a by n of b, into d. Returns whether the kernel takes the problem. */
static bool multiply(const qni_variant *v, qni_dtype dtype, uint8_t *a, int64_t m, uint8_t *b,
                     int64_t n, int form) {
    qni_reason why;
    const qni_gemm_problem p = {.dtype_a = dtype,
                                .dtype_b = dtype,
                                .dtype_d = QNI_F32,
                                .groups = 1,
                                .m = m,
                                .n = n,
                                .k = K,
                                .d = d,
                                .a = a,
                                .b = form == ALONG_K ? b : packed,
                                .d_row = n,
                                .a_row = K,
                                .a_k = 1,
                                .b_n = form == ACROSS ? 1 : K,
                                .b_k = form == ACROSS ? n : 1,
                                .scale_b_columns = 128,
                                .is_packed = form == PACKED,
                                .packed_n = CODES,
                                .packed_k = K};
    if (!qni_variant_fits(v, device, &p, &why))
        return false;
    put(b, n, form);
    memset(d, 0xFF, sizeof d);
    assert_int_equal(v->run(v, stream, &p), QN_OK);
    return true;
}

static void expect(const qni_variant *v, qni_dtype dtype, int64_t code, float got) {
    const float want = qni_fp8_decode(qni_fp8_of(dtype), (uint8_t)code);
    if (isnan(want) ? !isnan(got) : got != want)
        fail_msg("%s: code %d of %s is %g, not %g", v->name, (int)code, qni_dtype_name(dtype),
                 (double)got, (double)want);
}

/** Tries the codes as b, beside one row of a to FEW, then as a. */
static void try_form(const qni_variant *v, qni_dtype dtype, int form, int *ran) {
    for (int64_t m = 1; m <= FEW; m++) {
        if (!multiply(v, dtype, ones, m, codes, CODES, form))
            return;
        for (int64_t i = 0; i < m * CODES; i++)
            expect(v, dtype, i % CODES, d[i]);
    }
    assert_true(multiply(v, dtype, codes, CODES, ones, FEW, form));
    for (int64_t i = 0; i < CODES * FEW; i++)
        expect(v, dtype, i / FEW, d[i]);
    ++*ran;
}

static void every_code_has_its_value(void **) {
    static const qni_dtype dtypes[] = {QNI_E4M3FN, QNI_E4M3FNUZ};
    int ran = 0;
    for (int i = 0; i < 2 * FORMS; i++) {
        fill(dtypes[i % 2] == QNI_E4M3FN ? 0x38 : 0x40);
        for (int v = 0; v < qni_op_gemm.num_variants; v++)
            try_form(&qni_op_gemm.variants[v], dtypes[i % 2], i / 2, &ran);
    }
    assert_in_range(ran, 2 * FORMS, 1000); // every CPU has one kernel
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_code_has_its_value)};
    return cmocka_run_group_tests(tests, open_cpu, close_device);
}
