// SPDX-License-Identifier: Apache-2.0
// Tests of gfx950's scaled conversions between floats of 4, 6 and 8 bits and wider ones: every
// form, against a search among all numbers of the small type, with the layout read bit by bit.
#include "../exec_testing.h"

#include <math.h>

static test_wave *t;

static int set_up(void **) {
    t = make_wave("gfx950");
    return 0;
}

static int tear_down(void **) {
    free(t);
    return 0;
}

// ---- the small types, from the OCP specifications

typedef struct small_type {
    char name[4];
    int bits, mantissa, bias;
    unsigned largest; // code of the largest finite number
} small_type;

static const small_type types[] = {{"fp4", 4, 1, 1, 7},
                                   {"fp6", 6, 3, 1, 31},
                                   {"bf6", 6, 2, 3, 31},
                                   {"fp8", 8, 3, 7, 0x7e},
                                   {"bf8", 8, 2, 15, 0x7b}};

static double small_value(const small_type *s, unsigned code) {
    const unsigned sign = code >> (s->bits - 1), rest = code & ((1u << (s->bits - 1)) - 1);
    const int exponent = (int)rest >> s->mantissa;
    const double fraction = (double)(rest & ((1u << s->mantissa) - 1)) / (1 << s->mantissa);
    const double x =
        exponent ? exp2(exponent - s->bias) * (1 + fraction) : exp2(1 - s->bias) * fraction;
    return sign ? -x : x;
}

/** Returns the code of the nearest of all finite numbers; of two, the even code. */
static unsigned nearest(const small_type *s, double x) {
    unsigned best = 0;
    for (unsigned code = 1; code <= s->largest; code++) {
        const double mine = fabs(fabs(x) - small_value(s, code));
        const double least = fabs(fabs(x) - small_value(s, best));
        best = mine < least || (mine == least && code % 2 == 0) ? code : best;
    }
    return best | (signbit(x) ? 1u << (s->bits - 1) : 0);
}

/** Returns the upper neighbour if the position between the two and the random fraction add up to
 *  one, else the lower. */
static unsigned random_neighbour(const small_type *s, double x, uint32_t random) {
    unsigned below = 0;
    while (below < s->largest && small_value(s, below + 1) <= fabs(x))
        below++;
    const double low = small_value(s, below), gap = small_value(s, below + 1) - low;
    const bool up = below < s->largest && (fabs(x) - low) / gap + random * 0x1p-32 >= 1;
    return (below + up) | (signbit(x) ? 1u << (s->bits - 1) : 0);
}

static uint32_t next_of_sequence(uint32_t x) {
    const bool top = x & 0x80000000;
    x <<= 1;
    return top ? x ^ 0xc5 : x;
}

// ---- the wide types

static double wide_value(char wide, uint32_t bits) {
    float x;
    _Float16 half;
    uint16_t low = (uint16_t)bits;
    bits = wide == 'b' ? bits << 16 : bits;
    memcpy(&x, &bits, sizeof x);
    memcpy(&half, &low, sizeof half);
    return wide == 'h' ? (double)half : (double)x;
}

static unsigned wide_bits(char wide) {
    return wide == 'f' ? 32 : 16;
}

// ---- registers as one string of bits

enum { SCALE = 1, SRC = 2, SEED = 36, DST = 40 };

static uint32_t bits_of(const sim_wave *w, int reg, unsigned lane, unsigned at, unsigned count) {
    uint32_t out = 0;
    for (unsigned i = 0; i < count; i++) {
        const uint32_t word = w->v[reg + (int)((at + i) / 32)][lane];
        out |= (word >> (at + i) % 32 & 1) << i;
    }
    return out;
}

// ---- the forms

typedef struct form {
    const char *text; // operands and modifiers
    small_type small;
    char wide;        // f, h, b: f32, f16, bf16
    unsigned count;   // numbers
    unsigned at;      // first bit of the small side
    bool random;      // rounded by the seed
    bool interleaved; // numbers alternate between two sources
} form;

/** Fills the source rows, v[SRC...], with values of moderate size at scales about 1. */
static void prepare(const form *f, bool narrows) {
    randomise(t, random_exec((unsigned)next_random() % 6));
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint32_t scale = (uint32_t)next_random();
        t->wave.v[SCALE][lane] = (scale & 0x7fffff) | (124 + scale % 7) << 23;
        t->wave.v[SEED][lane] = (uint32_t)next_random();
        for (int i = 0; narrows && i < 32; i++) {
            const uint32_t r = (uint32_t)next_random(), e = r >> 8 & 7; // exponents -4 to 3
            const uint32_t half = f->wide == 'h' ? (11 + e) << 10 | (r >> 16 & 0x83ff)
                                                 : (123 + e) << 7 | (r >> 16 & 0x807f);
            const uint32_t other = (half & 0x7fff) | (r & 1) << 15;
            t->wave.v[SRC + i][lane] =
                f->wide == 'f' ? (r & 0x807fffff) | (123 + e) << 23 : half | other << 16;
        }
    }
    memcpy(&t->before, &t->wave, sizeof t->wave);
}

static double scale_value(unsigned lane) {
    return exp2((double)(t->before.v[SCALE][lane] >> 23 & 255) - 127);
}

static void check_widened(const form *f, unsigned lane) {
    for (unsigned i = 0; i < f->count; i++) {
        const unsigned width = wide_bits(f->wide);
        const uint32_t code = bits_of(&t->before, SRC, lane, f->at + i * (unsigned)f->small.bits,
                                      (unsigned)f->small.bits);
        const double got = wide_value(f->wide, bits_of(&t->wave, DST, lane, i * width, width));
        const unsigned rest = code & ((1u << (f->small.bits - 1)) - 1);
        const bool finite = rest <= f->small.largest;
        double want = small_value(&f->small, code) * scale_value(lane);
        want = f->wide == 'h' ? (double)(_Float16)want : want; // may be beyond f16
        if (finite ? got != want : isfinite(got))
            fail_msg("%s: number %u of lane %u: got %a, want %a", f->text, i, lane, got, want);
    }
}

static double element(const form *f, unsigned lane, unsigned i) {
    const unsigned width = wide_bits(f->wide);
    const int reg = SRC + (f->interleaved && i % 2 ? 16 : 0);
    const unsigned at = f->interleaved ? i / 2 * width : i * width;
    return wide_value(f->wide, bits_of(&t->before, reg, lane, at, width)) / scale_value(lane);
}

static void check_narrowed(const form *f, unsigned lane) {
    uint32_t random = t->before.v[SEED][lane];
    const unsigned bits = (unsigned)f->small.bits, end = f->at + f->count * bits;
    for (unsigned i = 0; i < f->count; i++) {
        const double x = element(f, lane, i);
        const unsigned want =
            f->random ? random_neighbour(&f->small, x, random) : nearest(&f->small, x);
        const unsigned got = bits_of(&t->wave, DST, lane, f->at + i * bits, bits);
        if (got != want) {
            fail_msg("%s: number %u of lane %u: %a: got %#x, want %#x", f->text, i, lane, x, got,
                     want);
        }
        random = next_of_sequence(random);
    }
    for (unsigned at = 0; end < 32 && at < 32; at++) { // the rest keeps its value
        if (at < f->at || at >= end) {
            assert_int_equal(bits_of(&t->wave, DST, lane, at, 1),
                             bits_of(&t->before, DST, lane, at, 1));
        }
    }
}

static void run_form(const form *f, bool narrows) {
    size_t size;
    uint8_t *text = assemble("gfx950", f->text, &size);
    sim_inst inst = decode_at("gfx950", text, size, 0);
    assert_int_equal(inst.bytes, size);
    for (unsigned round = 0; round < 16; round++) {
        prepare(f, narrows);
        (round & 1 ? inst.exec : sim_opcode_portable(inst.opcode)->exec)(&t->wave, &inst);
        for (unsigned lane = 0; lane < SIM_LANES; lane++)
            if (!(t->before.exec >> lane & 1))
                assert_int_equal(t->wave.v[DST][lane], t->before.v[DST][lane]);
            else if (narrows)
                check_narrowed(f, lane);
            else
                check_widened(f, lane);
    }
    free(text);
}

static const char *const wide_names[] = {"f32", "f16", "bf16"};
static const char wide_letters[] = "fhb";

static const char *tuple(char out[16], int first, unsigned count) {
    if (count == 1)
        snprintf(out, 16, "v%d", first);
    else
        snprintf(out, 16, "v[%d:%d]", first, first + (int)count - 1);
    return out;
}

/** Checks v_cvt_scalef32_[pk_|pk32_]WIDE_SMALL. op_sel chooses the second byte or half. */
static void check_widening(const small_type *s, unsigned wide, unsigned count) {
    char text[128], dst[16], src[16];
    const unsigned small_bits = (unsigned)s->bits * count,
                   rows = (count * (wide ? 16 : 32) + 31) / 32;
    const char *prefix = count == 1 ? "" : count == 2 ? "pk_" : "pk32_";
    const char *op_sel =
        small_bits < 32
            ? small_bits == 8 && count == 1 && wide == 1 ? " op_sel:[1,0,0,0]" : " op_sel:[1,0,0]"
            : "";
    snprintf(text, sizeof text, "v_cvt_scalef32_%s%s_%s %s, %s, v1%s\n", prefix, wide_names[wide],
             s->name, tuple(dst, DST, rows), tuple(src, SRC, count == 32 ? 6 : 1), op_sel);
    form f = {text, *s, wide_letters[wide], count, small_bits < 32 ? small_bits : 0, false, false};
    run_form(&f, false);
}

static void test_widening(void **) {
    for (unsigned wide = 0; wide < 3; wide++) {
        check_widening(&types[0], wide, 2);
        for (unsigned s = 1; s < 3; s++)
            check_widening(&types[s], wide, 32);
        for (unsigned s = 3; s < 5; s++) {
            check_widening(&types[s], wide, 2);
            if (wide < 2)
                check_widening(&types[s], wide, 1);
        }
    }
}

/** Checks v_cvt_scalef32_[sr_][pk_|pk32_]SMALL_WIDE. op_sel bit 3 chooses the second half or the
 *  third byte. */
static void check_narrowing(const small_type *s, unsigned wide, unsigned count, bool random) {
    char text[128], dst[16], src[16];
    const unsigned small_bits = (unsigned)s->bits * count;
    const unsigned rows = (count * (wide ? 16 : 32) + 31) / 32;
    const bool two = count == 2 && !wide && !random; // two sources of one f32
    const char *prefix = count == 1 ? "" : count == 2 ? "pk_" : "pk32_";
    const char *op_sel = small_bits > 32 ? ""
                         : two || random ? " op_sel:[0,0,0,1]"
                                         : " op_sel:[0,0,1]";
    if (small_bits == 8 && !two && !random)
        op_sel = " op_sel:[0,0,0,1]";
    snprintf(text, sizeof text, "v_cvt_scalef32_%s%s%s_%s %s, %s%s, v1%s\n", random ? "sr_" : "",
             prefix, s->name, wide_names[wide], tuple(dst, DST, count == 32 ? 6 : 1),
             tuple(src, SRC, two ? 1 : rows),
             random ? ", v36"
             : two  ? ", v3"
                    : "",
             op_sel);
    form f = {text, *s, wide_letters[wide], count, small_bits < 32 ? 16 : 0, random, false};
    run_form(&f, true);
}

static void test_narrowing(void **) {
    for (unsigned wide = 0; wide < 3; wide++) {
        for (unsigned s = 0; s < 5; s++) {
            const bool pairs = s == 0 || s > 2;
            if (pairs)
                check_narrowing(&types[s], wide, 2, false);
            else if (wide)
                check_narrowing(&types[s], wide, 32, false);
            check_narrowing(&types[s], wide, s == 0 ? 2 : s < 3 ? 32 : 1, true);
        }
    }
}

static void test_interleaved(void **) {
    form f = {.wide = 'f', .count = 32, .interleaved = true};
    for (unsigned s = 1; s < 3; s++) {
        char text[128];
        snprintf(text, sizeof text,
                 "v_cvt_scalef32_2xpk16_%s_f32 v[40:45], v[2:17], v[18:33], v1\n", types[s].name);
        f.text = text;
        f.small = types[s];
        run_form(&f, true);
    }
}

static void test_sequence(void **) {
    size_t size;
    uint8_t *text = assemble("gfx950", "v_prng_b32 v40, v2\n", &size);
    sim_inst inst = decode_at("gfx950", text, size, 0);
    randomise(t, UINT64_MAX);
    memcpy(&t->before, &t->wave, sizeof t->wave);
    inst.exec(&t->wave, &inst);
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        assert_int_equal(t->wave.v[DST][lane], next_of_sequence(t->before.v[SRC][lane]));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widening), cmocka_unit_test(test_narrowing),
        cmocka_unit_test(test_interleaved), cmocka_unit_test(test_sequence)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
