// SPDX-License-Identifier: Apache-2.0
// Runs on the host what GPU kernels compute in registers: FP8 repairs, decoding to bf16, the packed
// order.
#include "../../gpu/fp8.h"
#include "../shared/fp8.h"
#include "gemm_abi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/** Puts every byte beside every other: a carry into a neighbour would show. */
static void test_repair(void **state) {
    (void)state;
    for (uint32_t low = 0; low < 256; low++)
        for (uint32_t high = 0; high < 256; high++) {
            const uint32_t codes = high << 24 | low << 16 | high << 8 | low;
            const uint32_t got = qd_fp8_fnuz_from_fn(codes);
            for (int i = 0; i < 4; i++) {
                const uint8_t fn = (uint8_t)(codes >> (8 * i)), fnuz = (uint8_t)(got >> (8 * i));
                const float was = qni_fp8_decode(QNI_FP8_E4M3FN, fn);
                const float is = qni_fp8_decode(QNI_FP8_E4M3FNUZ, fnuz);
                if (isnan(was) ? !isnan(is) : 2 * is != was)
                    fail_msg("byte %d of 0x%08x: 0x%02x became 0x%02x", i, codes, fn, fnuz);
            }
        }
}

static void test_to_bf16(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 256; code++)
        for (int kind = QD_E4M3FN; kind <= QD_E4M3FNUZ; kind++) {
            const uint32_t codes[2] = {code | code << 24, code << 8 | code << 16};
            static const int at[4] = {0, 3, 5, 6};
            uint32_t out[4];
            qd_fp8_to_bf16(kind, codes, out);
            for (int i = 0; i < 4; i++) {
                uint32_t bits = out[at[i] / 2] >> (at[i] % 2 * 16) << 16;
                float got, want = qni_fp8_decode((qni_fp8)kind, (uint8_t)code);
                memcpy(&got, &bits, sizeof got);
                assert_true(isnan(want) ? isnan(got)
                                        : got == want && signbit(got) == signbit(want));
            }
        }
}

/** Each byte of the packed matrix must belong to one element. */
static void test_packed_order(void **state) {
    (void)state;
    constexpr uint32_t n = 256, k = 384;
    uint8_t *taken = calloc(n, k);
    assert_non_null(taken);
    for (uint32_t row = 0; row < n; row++)
        for (uint32_t i = 0; i < k; i++) {
            const int64_t at = qk_gemm_packed_offset(row, i, k);
            assert_true(at >= 0 && at < (int64_t)n * k);
            assert_int_equal(taken[at]++, 0);
        }
    free(taken);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repair),
        cmocka_unit_test(test_to_bf16),
        cmocka_unit_test(test_packed_order),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
