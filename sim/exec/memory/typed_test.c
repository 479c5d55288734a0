// SPDX-License-Identifier: Apache-2.0
// Tests of loads and stores of typed buffers, which compilers rarely emit: whole and by halves, of
// every format that the assembler names, against a model of bytes written for the test.
#include "memory_testing.h"

#include <math.h>

/** A format by its name: the bits of the components, the highest first, and a kind of number. */
typedef struct format {
    unsigned count, bits[4];
    char kind[8];
} format;

static format parse_format(const char *name) {
    format f = {};
    for (char *end; *name >= '0' && *name <= '9'; name = end + 1) {
        memmove(f.bits + 1, f.bits, 3 * sizeof *f.bits);
        f.bits[0] = (unsigned)strtoul(name, &end, 10);
        f.count++;
    }
    snprintf(f.kind, sizeof f.kind, "%s", name);
    return f;
}

static unsigned size_of(const format *f) {
    unsigned bits = 0;
    for (unsigned i = 0; i < f->count; i++)
        bits += f->bits[i];
    return bits / 8;
}

/** Returns component i of the element at `from`. */
static uint32_t component(const format *f, const uint8_t *from, unsigned i) {
    unsigned first = 0;
    uint32_t value = 0;
    for (unsigned k = 0; k < i; k++)
        first += f->bits[k];
    for (unsigned k = 0; k < f->bits[i]; k++)
        value |= (uint32_t)(from[(first + k) / 8] >> (first + k) % 8 & 1) << k;
    return value;
}

static double small_float(uint32_t x, unsigned bits) {
    const unsigned fraction = bits == 16 ? 10 : bits - 5;
    const double sign = bits == 16 && x >> 15 ? -1 : 1;
    const uint32_t exponent = x >> fraction & 31, mantissa = x & ((1u << fraction) - 1);
    if (exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    const double value =
        exponent ? ldexp(mantissa + (1u << fraction), (int)exponent - 15 - (int)fraction)
                 : ldexp(mantissa, -14 - (int)fraction);
    return sign * value;
}

static double number(const format *f, uint32_t x, unsigned bits) {
    const double most = ldexp(1, (int)bits) - 1, half = ldexp(1, (int)bits - 1);
    const double as_signed = x >= half ? x - 2 * half : x;
    switch (f->kind[0] == 'U' || f->kind[0] == 'S' ? f->kind[0] << 8 | f->kind[1] : f->kind[0]) {
    case 'U' << 8 | 'N':
        return x / most;
    case 'S' << 8 | 'N':
        return fmax(as_signed / (half - 1), -1);
    case 'U' << 8 | 'S':
    case 'U' << 8 | 'I':
        return x;
    case 'F':
        return small_float(x, bits);
    default:
        return as_signed;
    }
}

static bool is_integer(const format *f) {
    return !strcmp(f->kind, "UINT") || !strcmp(f->kind, "SINT");
}

/** Returns what a register should hold. */
static uint32_t wanted(const format *f, const uint8_t *from, unsigned i) {
    const uint32_t one = is_integer(f) ? 1 : 0x3f800000;
    if (i >= f->count)
        return i == 3 ? one : 0;
    const uint32_t x = component(f, from, i);
    if (f->bits[i] == 32 && f->kind[0] == 'F')
        return x;
    if (is_integer(f))
        return (uint32_t)(int64_t)number(f, x, f->bits[i]);
    float value = (float)number(f, x, f->bits[i]);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static bool same(uint32_t got, uint32_t want) {
    const bool nans = (got & 0x7fffffff) > 0x7f800000 && (want & 0x7fffffff) > 0x7f800000;
    return got == want || nans;
}

static const char *format_text(const char *arch, const char *name, char out[96]) {
    format f = parse_format(name);
    const int length = (int)(strstr(name, f.kind) - name) - 1;
    if (arch[3] == '9')
        snprintf(out, 96, "format:[BUF_DATA_FORMAT_%.*s,BUF_NUM_FORMAT_%s]", length, name, f.kind);
    else
        snprintf(out, 96, "format:[BUF_FMT_%s]", name);
    return out;
}

/** Returns descriptor word 3 with the format's number, read from the instruction that the assembler
 *  made of its name. */
static uint32_t format_word(const char *arch, const uint32_t *word) {
    const uint32_t identity = 4 | 5 << 3 | 6 << 6 | 7 << 9;
    return arch[3] == '9' ? identity | (word[0] >> 19 & 15) << 15 | (word[0] >> 23 & 7) << 12
           : !strcmp(arch, "gfx1151") ? identity | (word[0] >> 19 & 127) << 12
                                      : identity | (word[1] >> 23 & 127) << 12;
}

static void check_loads(const format *f, const char *name) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint8_t *from = model + (uint64_t)size_of(f) * t->before.v[1][lane];
        for (unsigned i = 0; active(lane) && i < 4; i++) {
            uint32_t want = wanted(f, from, i), swapped = i < 3 ? wanted(f, from, 2 - i) : want;
            swapped = i == 3 ? (is_integer(f) ? 1 : 0x3f800000) : swapped;
            if (!same(t->wave.v[20 + i][lane], want) || !same(t->wave.v[24 + i][lane], swapped)) {
                fail_msg("%s component %u lane %u: %08x and %08x, not %08x and %08x", name, i, lane,
                         t->wave.v[20 + i][lane], t->wave.v[24 + i][lane], want, swapped);
            }
        }
    }
}

static void load_format(const char *arch, const char *name) {
    char source[512], text[96];
    size_t size;
    format f = parse_format(name);
    const char *soffset = strcmp(arch, "gfx1201") ? "0" : "null";
    snprintf(source, sizeof source,
             "tbuffer_load_format_xyzw v[20:23], v1, s[8:11], %s %s idxen\n"
             "s_mov_b32 s11, s7\n"
             "buffer_load_format_xyzw v[24:27], v1, s[8:11], %s idxen\n",
             soffset, format_text(arch, name, text), soffset);
    uint8_t *code = assemble(arch, source, &size);
    uint32_t word[2];
    memcpy(word, code, sizeof word);
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise_all(round);
        set_descriptor(size_of(&f), 1000, 0, 0);
        const uint32_t zyx1 = 6 | 5 << 3 | 4 << 6 | 1 << 9;
        t->wave.s[7] = (format_word(arch, word) & ~0xfffu) | zyx1; // blue, green, red, one
        for (unsigned lane = 0; lane < SIM_LANES; lane++)
            t->wave.v[1][lane] = (uint32_t)next_random() % 1000;
        execute(arch, code, size, round);
        check_loads(&f, name);
    }
    free(code);
}

static const char *const gfx9_formats[] = {"8_UNORM",           "8_SINT",
                                           "16_FLOAT",          "16_SNORM",
                                           "8_8_USCALED",       "32_UINT",
                                           "32_FLOAT",          "16_16_SSCALED",
                                           "16_16_FLOAT",       "10_11_11_FLOAT",
                                           "11_11_10_FLOAT",    "10_10_10_2_UNORM",
                                           "2_10_10_10_SNORM",  "2_10_10_10_UINT",
                                           "8_8_8_8_UNORM",     "8_8_8_8_SNORM",
                                           "8_8_8_8_UINT",      "32_32_SINT",
                                           "16_16_16_16_FLOAT", "16_16_16_16_UNORM",
                                           "32_32_32_FLOAT",    "32_32_32_32_FLOAT",
                                           "32_32_32_32_UINT"};

static const char *const rdna_formats[] = {"8_UNORM",
                                           "8_SNORM",
                                           "8_USCALED",
                                           "8_SSCALED",
                                           "8_UINT",
                                           "8_SINT",
                                           "16_UNORM",
                                           "16_SNORM",
                                           "16_USCALED",
                                           "16_SSCALED",
                                           "16_UINT",
                                           "16_SINT",
                                           "16_FLOAT",
                                           "8_8_UNORM",
                                           "8_8_SNORM",
                                           "8_8_USCALED",
                                           "8_8_SSCALED",
                                           "8_8_UINT",
                                           "8_8_SINT",
                                           "32_UINT",
                                           "32_SINT",
                                           "32_FLOAT",
                                           "16_16_UNORM",
                                           "16_16_SNORM",
                                           "16_16_USCALED",
                                           "16_16_SSCALED",
                                           "16_16_UINT",
                                           "16_16_SINT",
                                           "16_16_FLOAT",
                                           "10_11_11_FLOAT",
                                           "11_11_10_FLOAT",
                                           "10_10_10_2_UNORM",
                                           "10_10_10_2_SNORM",
                                           "10_10_10_2_UINT",
                                           "10_10_10_2_SINT",
                                           "2_10_10_10_UNORM",
                                           "2_10_10_10_SNORM",
                                           "2_10_10_10_USCALED",
                                           "2_10_10_10_SSCALED",
                                           "2_10_10_10_UINT",
                                           "2_10_10_10_SINT",
                                           "8_8_8_8_UNORM",
                                           "8_8_8_8_SNORM",
                                           "8_8_8_8_USCALED",
                                           "8_8_8_8_SSCALED",
                                           "8_8_8_8_UINT",
                                           "8_8_8_8_SINT",
                                           "32_32_UINT",
                                           "32_32_SINT",
                                           "32_32_FLOAT",
                                           "16_16_16_16_UNORM",
                                           "16_16_16_16_SNORM",
                                           "16_16_16_16_USCALED",
                                           "16_16_16_16_SSCALED",
                                           "16_16_16_16_UINT",
                                           "16_16_16_16_SINT",
                                           "16_16_16_16_FLOAT",
                                           "32_32_32_UINT",
                                           "32_32_32_SINT",
                                           "32_32_32_FLOAT",
                                           "32_32_32_32_UINT",
                                           "32_32_32_32_SINT",
                                           "32_32_32_32_FLOAT"};

static void test_typed_loads(void **) {
    start("gfx942");
    for (size_t i = 0; i < sizeof gfx9_formats / sizeof *gfx9_formats; i++)
        load_format("gfx942", gfx9_formats[i]);
    static const char *const archs[] = {"gfx1151", "gfx1201"};
    for (size_t a = 0; a < 2; a++) {
        start(archs[a]);
        for (size_t i = a; i < sizeof rdna_formats / sizeof *rdna_formats; i += a + 1)
            load_format(archs[a], rdna_formats[i]);
    }
}

/** Tests stores of three f32 components and of one 16-bit component: the bytes around them
 *  stay. */
static void test_typed_stores(void **) {
    size_t size;
    uint8_t *code = assemble("gfx942",
                             "tbuffer_store_format_xyz v[4:6], v1, s[8:11], 0 "
                             "format:[BUF_DATA_FORMAT_8_8_8_8,BUF_NUM_FORMAT_UNORM] idxen\n"
                             "tbuffer_store_format_x v4, v1, s[8:11], 0 "
                             "format:[BUF_DATA_FORMAT_16,BUF_NUM_FORMAT_SNORM] idxen offset:16\n"
                             "tbuffer_store_format_d16_x v7, v1, s[8:11], 0 "
                             "format:[BUF_DATA_FORMAT_32,BUF_NUM_FORMAT_FLOAT] idxen offset:8\n",
                             &size);
    start("gfx942");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise_all(round);
        set_descriptor(32, 1000, 0, 0);
        for (unsigned lane = 0; lane < SIM_LANES; lane++)
            t->wave.v[1][lane] = lane * 3;
        execute("gfx942", code, size, round);
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            uint8_t *want = model + 32 * (lane * 3);
            for (unsigned i = 0; active(lane) && i < 3; i++) {
                float x;
                memcpy(&x, &t->before.v[4 + i][lane], sizeof x);
                const double inside = isnan(x) ? 0 : fmin(fmax((double)x, 0), 1);
                want[i] = (uint8_t)nearbyint(inside * 255);
            }
            if (active(lane)) {
                float x;
                _Float16 half;
                memcpy(&x, &t->before.v[4][lane], sizeof x);
                memcpy(&half, &t->before.v[7][lane], sizeof half);
                const double inside = isnan(x) ? 0 : fmin(fmax((double)x, -1), 1);
                int16_t rounded = (int16_t)nearbyint(inside * 32767);
                float wide = (float)half;
                memcpy(want + 16, &rounded, sizeof rounded);
                memcpy(want + 8, &wide, sizeof wide);
                if (isnan(wide))
                    memcpy(want + 8, memory + 32 * (lane * 3) + 8, 4);
            }
        }
        assert_memory_equal(memory, model, BYTES);
    }
    free(code);
}

/** Tests 16-bit results: packed pairs, or one half that leaves the other unchanged. */
static void test_typed_halves(void **) {
    size_t size;
    uint8_t *code = assemble("gfx1201",
                             "tbuffer_load_d16_format_xyz v[20:21], v1, s[8:11], null "
                             "format:[BUF_FMT_16_16_16_16_FLOAT] idxen\n"
                             "s_mov_b32 s11, s7\n"
                             "buffer_load_d16_hi_format_x v22, v1, s[8:11], null idxen\n",
                             &size);
    start("gfx1201");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise_all(round);
        set_descriptor(8, 1000, 0, 0);
        t->wave.s[7] = 4 | 57 << 12; // red of 16_16_16_16_FLOAT
        for (unsigned lane = 0; lane < SIM_LANES; lane++)
            t->wave.v[1][lane] = (uint32_t)next_random() % 1100;
        execute("gfx1201", code, size, round);
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            const uint32_t index = t->before.v[1][lane];
            uint64_t x = index < 1000 ? at(model, 8 * index, 8) : 0;
            for (unsigned shift = 0; shift < 64;
                 shift += 16) { // halves pass through f32, so NaNs become quiet
                const bool is_nan = (x >> shift & 0x7fff) > 0x7c00;
                x |= is_nan ? UINT64_C(0x200) << shift : 0;
            }
            if (active(lane)) {
                assert_int_equal(t->wave.v[20][lane], (uint32_t)x);
                uint32_t kept = t->before.v[21][lane] & 0xffff0000;
                assert_int_equal(t->wave.v[21][lane], (x >> 32 & 0xffff) | kept);
                kept = t->before.v[22][lane] & 0xffff;
                assert_int_equal(t->wave.v[22][lane], (uint32_t)(x & 0xffff) << 16 | kept);
            }
        }
    }
    free(code);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_typed_loads),
        cmocka_unit_test(test_typed_stores),
        cmocka_unit_test(test_typed_halves),
    };
    return cmocka_run_group_tests(tests, nullptr, tear_down);
}
