// SPDX-License-Identifier: Apache-2.0
// Tests of ops/shared/fp8.h: every f16 and bf16 value, and f32 values around every tie, against a
// search for the nearest code. tests/fp8_test.py holds the same header to ml_dtypes. gpu/fp8.h must
// agree with it.
#include "../../gpu/fp8.h"
#include "../shared/fp8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/** Returns the nearest code by trying all codes: the definition without any bit trick. */
static uint8_t nearest_code(qni_fp8 kind, float x) {
    const qni_fp8_format f = qni_fp8_format_of(kind);
    if (isnan(x))
        return f.nan_code;
    if (fabsf(x) >= f.max)
        return (uint8_t)(f.max_code | (x < 0 ? 0x80 : 0));
    int best = 0;
    for (int code = 1; code <= f.max_code; code++) {
        const double d = fabs(qni_fp8_decode(kind, (uint8_t)code) - fabs((double)x));
        const double d_best = fabs(qni_fp8_decode(kind, (uint8_t)best) - fabs((double)x));
        if (d < d_best || (d == d_best && (code & 1) == 0))
            best = code;
    }
    return (uint8_t)(best | (signbit(x) && !(f.is_fnuz && best == 0) ? 0x80 : 0));
}

static void check_encode(qni_fp8 kind, float x) {
    const uint8_t got = qni_fp8_encode(kind, x), want = nearest_code(kind, x);
    if (got != want)
        fail_msg("kind %d: %a gives 0x%02x, nearest is 0x%02x", (int)kind, (double)x, got, want);
}

static void test_codes_come_back(void **state) {
    (void)state;
    for (int kind = 0; kind < QNI_NUM_FP8; kind++)
        for (int code = 0; code < 256; code++) {
            const float x = qni_fp8_decode((qni_fp8)kind, (uint8_t)code);
            assert_int_equal(isnan(x), qni_fp8_is_nan((qni_fp8)kind, (uint8_t)code));
            if (!isnan(x) && !isinf(x))
                assert_int_equal(qni_fp8_encode((qni_fp8)kind, x), code);
        }
}

static void test_every_16_bit_value(void **state) {
    (void)state;
    for (int kind = 0; kind < QNI_NUM_FP8; kind++)
        for (uint32_t i = 0; i < 65536; i++) {
            check_encode((qni_fp8)kind, __builtin_bit_cast(float, i << 16));
            check_encode((qni_fp8)kind, (float)__builtin_bit_cast(_Float16, (uint16_t)i));
        }
}

/** Tries the f32 neighbours of each tie between codes, and the tie itself. */
static void test_ties(void **state) {
    (void)state;
    for (int kind = 0; kind < QNI_NUM_FP8; kind++)
        for (int code = 0; code < qni_fp8_format_of((qni_fp8)kind).max_code; code++) {
            const float tie = (qni_fp8_decode((qni_fp8)kind, (uint8_t)code) +
                               qni_fp8_decode((qni_fp8)kind, (uint8_t)(code + 1))) *
                              0.5f;
            for (int sign = -1; sign <= 1; sign += 2) {
                check_encode((qni_fp8)kind, (float)sign * tie);
                check_encode((qni_fp8)kind, (float)sign * nextafterf(tie, 0.0f));
                check_encode((qni_fp8)kind, (float)sign * nextafterf(tie, 1e9f));
            }
        }
}

static void test_beyond_the_range(void **state) {
    (void)state;
    for (int kind = 0; kind < QNI_NUM_FP8; kind++) {
        const qni_fp8_format f = qni_fp8_format_of((qni_fp8)kind);
        const float beyond[] = {nextafterf(f.max, INFINITY), f.max * 1.25f, 1e30f, __FLT_MAX__,
                                INFINITY};
        assert_true(qni_fp8_decode((qni_fp8)kind, f.max_code) == f.max);
        for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
            assert_int_equal(qni_fp8_encode((qni_fp8)kind, beyond[i]), f.max_code);
            assert_int_equal(qni_fp8_encode((qni_fp8)kind, -beyond[i]), f.max_code | 0x80);
        }
        assert_int_equal(qni_fp8_encode((qni_fp8)kind, -NAN), f.nan_code);
        assert_int_equal(qni_fp8_encode((qni_fp8)kind, -1e-45f), f.is_fnuz ? 0 : 0x80);
    }
}

static void assert_same_code(int kind, float x) {
    const uint8_t want = qni_fp8_encode((qni_fp8)kind, x);
    const uint32_t got = qd_fp8_encode(kind, x);
    if (got != want)
        fail_msg("kind %d: %a: device code 0x%02x, host 0x%02x", kind, (double)x, got, want);
}

/** gpu/fp8.h, compiled for the host, must give the codes and values of ops/shared/fp8.h. */
static void test_device_header(void **state) {
    (void)state;
    for (int kind = 0; kind < QNI_NUM_FP8; kind++) {
        assert_true(qd_fp8_max(kind) == qni_fp8_format_of((qni_fp8)kind).max);
        for (uint32_t i = 0; i < 65536; i++) {
            assert_same_code(kind, __builtin_bit_cast(float, i << 16));
            assert_same_code(kind, __builtin_bit_cast(float, i << 16 | 0x8001));
            assert_same_code(kind, (float)__builtin_bit_cast(_Float16, (uint16_t)i));
        }
        for (uint32_t code = 0; code < 256; code++) {
            const float want = qni_fp8_decode((qni_fp8)kind, (uint8_t)code);
            const float got = qd_fp8_decode(kind, code);
            assert_true(isnan(want) ? isnan(got)
                                    : __builtin_bit_cast(uint32_t, want) ==
                                          __builtin_bit_cast(uint32_t, got));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_come_back),
        cmocka_unit_test(test_every_16_bit_value),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_beyond_the_range),
        cmocka_unit_test(test_device_header),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
