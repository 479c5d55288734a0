// SPDX-License-Identifier: Apache-2.0
// Memory instructions that compilers rarely emit: typed and swizzled buffers, scalar stores and atomics, transposing
// loads, blocks of registers. Each against a model of bytes written for the test; formats are named by the assembler.
#include "exec_testing.h"

#include <math.h>

enum { ROUNDS = 16, BYTES = 65536, SRD = 8 };

static test_wave *t;
static uint8_t model[BYTES];
static uint8_t *memory; // host address of the guest's BYTES bytes
static uint64_t guest;

static void start(const char *arch) {
    bool is_first = !t;
    sim_memory *space = is_first ? sim_memory_create() : t->dispatch.memory;
    free(t);
    t = make_wave(arch);
    t->dispatch.memory = space;
    t->wave.wave32 = sim_chip_by_name(arch)->wave_size == 32;
    if (is_first) {
        guest = sim_memory_alloc(space, BYTES, SIM_REGION_DEVICE, 0)->base;
        memory = sim_memory_host(space, guest, BYTES);
    }
}

static int tear_down(void **) {
    sim_memory_destroy(t->dispatch.memory);
    free(t);
    return 0;
}

static void randomise_all(unsigned round) {
    uint64_t exec = random_exec(round);
    randomise(t, t->wave.wave32 ? (uint32_t)exec : exec);
    for (unsigned i = 0; i < BYTES; i++) {
        memory[i] = (uint8_t)next_random();
    }
    memcpy(model, memory, BYTES);
}

/** s[8:11]: a buffer over all of the memory, or less. */
static void set_descriptor(uint32_t stride, uint32_t records, uint32_t word1, uint32_t word3) {
    t->wave.s[SRD] = (uint32_t)guest;
    t->wave.s[SRD + 1] = (uint32_t)(guest >> 32) | stride << 16 | word1;
    t->wave.s[SRD + 2] = records;
    t->wave.s[SRD + 3] = word3;
}

static void execute(const char *arch, const uint8_t *text, size_t size, unsigned round) {
    memcpy(&t->before, &t->wave, sizeof t->wave);
    for (size_t at = 0; at < size;) {
        sim_inst inst = decode_at(arch, text, size, at);
        (round & 1 ? inst.exec : sim_opcode_portable(inst.opcode)->exec)(&t->wave, &inst);
        at += inst.bytes;
    }
    assert_int_equal(t->wave.state, SIM_RUNNING);
}

static bool active(unsigned lane) {
    return t->before.exec >> lane & 1;
}

static uint64_t at(const uint8_t *bytes, uint64_t from, unsigned count) {
    uint64_t value = 0;
    memcpy(&value, bytes + from, count);
    return value;
}

// ---- typed buffers

/** What a format's name says: bits of the components, the highest first; a kind of number. */
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
    for (unsigned i = 0; i < f->count; i++) {
        bits += f->bits[i];
    }
    return bits / 8;
}

/** Component i of the element at `from`. */
static uint32_t component(const format *f, const uint8_t *from, unsigned i) {
    unsigned first = 0;
    uint32_t value = 0;
    for (unsigned k = 0; k < i; k++) {
        first += f->bits[k];
    }
    for (unsigned k = 0; k < f->bits[i]; k++) {
        value |= (uint32_t)(from[(first + k) / 8] >> (first + k) % 8 & 1) << k;
    }
    return value;
}

static double small_float(uint32_t x, unsigned bits) {
    unsigned fraction = bits == 16 ? 10 : bits - 5;
    double sign = bits == 16 && x >> 15 ? -1 : 1;
    uint32_t exponent = x >> fraction & 31, mantissa = x & ((1u << fraction) - 1);
    if (exponent == 31) {
        return mantissa ? NAN : sign * INFINITY;
    }
    double value = exponent ? ldexp(mantissa + (1u << fraction), (int)exponent - 15 - (int)fraction)
                            : ldexp(mantissa, -14 - (int)fraction);
    return sign * value;
}

static double number(const format *f, uint32_t x, unsigned bits) {
    double most = ldexp(1, (int)bits) - 1, half = ldexp(1, (int)bits - 1);
    double as_signed = x >= half ? x - 2 * half : x;
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

/** What a register should hold. */
static uint32_t wanted(const format *f, const uint8_t *from, unsigned i) {
    uint32_t one = is_integer(f) ? 1 : 0x3f800000;
    if (i >= f->count) {
        return i == 3 ? one : 0;
    }
    uint32_t x = component(f, from, i);
    if (f->bits[i] == 32 && f->kind[0] == 'F') {
        return x;
    }
    if (is_integer(f)) {
        return (uint32_t)(int64_t)number(f, x, f->bits[i]);
    }
    float value = (float)number(f, x, f->bits[i]);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static bool same(uint32_t got, uint32_t want) {
    bool nans = (got & 0x7fffffff) > 0x7f800000 && (want & 0x7fffffff) > 0x7f800000;
    return got == want || nans;
}

static const char *format_text(const char *arch, const char *name, char out[96]) {
    format f = parse_format(name);
    int length = (int)(strstr(name, f.kind) - name) - 1;
    if (arch[3] == '9') {
        snprintf(out, 96, "format:[BUF_DATA_FORMAT_%.*s,BUF_NUM_FORMAT_%s]", length, name, f.kind);
    } else {
        snprintf(out, 96, "format:[BUF_FMT_%s]", name);
    }
    return out;
}

/** Descriptor word 3 with the format's number, read from the instruction that the assembler made of its name. */
static uint32_t format_word(const char *arch, const uint32_t *word) {
    uint32_t identity = 4 | 5 << 3 | 6 << 6 | 7 << 9;
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
        uint32_t zyx1 = 6 | 5 << 3 | 4 << 6 | 1 << 9;
        t->wave.s[7] = (format_word(arch, word) & ~0xfffu) | zyx1; // blue, green, red, one
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            t->wave.v[1][lane] = (uint32_t)next_random() % 1000;
        }
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
    for (size_t i = 0; i < sizeof gfx9_formats / sizeof *gfx9_formats; i++) {
        load_format("gfx942", gfx9_formats[i]);
    }
    static const char *const archs[] = {"gfx1151", "gfx1201"};
    for (size_t a = 0; a < 2; a++) {
        start(archs[a]);
        for (size_t i = a; i < sizeof rdna_formats / sizeof *rdna_formats; i += a + 1) {
            load_format(archs[a], rdna_formats[i]);
        }
    }
}

/** Stores three components, f32, and one 16-bit one; what lies around them stays. */
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
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            t->wave.v[1][lane] = lane * 3;
        }
        execute("gfx942", code, size, round);
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            uint8_t *want = model + 32 * (lane * 3);
            for (unsigned i = 0; active(lane) && i < 3; i++) {
                float x;
                memcpy(&x, &t->before.v[4 + i][lane], sizeof x);
                double inside = isnan(x) ? 0 : fmin(fmax((double)x, 0), 1);
                want[i] = (uint8_t)nearbyint(inside * 255);
            }
            if (active(lane)) {
                float x;
                _Float16 half;
                memcpy(&x, &t->before.v[4][lane], sizeof x);
                memcpy(&half, &t->before.v[7][lane], sizeof half);
                double inside = isnan(x) ? 0 : fmin(fmax((double)x, -1), 1);
                int16_t rounded = (int16_t)nearbyint(inside * 32767);
                float wide = (float)half;
                memcpy(want + 16, &rounded, sizeof rounded);
                memcpy(want + 8, &wide, sizeof wide);
                if (isnan(wide)) {
                    memcpy(want + 8, memory + 32 * (lane * 3) + 8, 4);
                }
            }
        }
        assert_memory_equal(memory, model, BYTES);
    }
    free(code);
}

/** 16-bit results: packed pairs, or one half that leaves the other alone. */
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
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            t->wave.v[1][lane] = (uint32_t)next_random() % 1100;
        }
        execute("gfx1201", code, size, round);
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            uint32_t index = t->before.v[1][lane];
            uint64_t x = index < 1000 ? at(model, 8 * index, 8) : 0;
            for (unsigned shift = 0; shift < 64;
                 shift += 16) { // halves come through f32: NaNs become quiet
                bool is_nan = (x >> shift & 0x7fff) > 0x7c00;
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

// ---- swizzled buffers, lanes as indices

typedef struct swizzle {
    const char *arch;
    uint32_t word1, word3, element, index_stride;
    bool adds_lane;
} swizzle;

static void check_swizzle(const swizzle *s) {
    enum { STRIDE = 16, RECORDS = 200 };
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        uint32_t index = t->before.v[2][lane] + (s->adds_lane ? lane : 0),
                 offset = t->before.v[3][lane];
        uint32_t rows = index / s->index_stride * s->index_stride; // records in the blocks before
        uint32_t column = index - rows, part = offset / s->element * s->element;
        uint32_t want =
            rows * STRIDE + part * s->index_stride + column * s->element + offset - part;
        if (active(lane)) {
            uint32_t right = index < RECORDS ? (uint32_t)at(model, want, 4) : 0;
            assert_int_equal(t->wave.v[20][lane], right);
        }
    }
}

static void test_swizzles(void **) {
    static const swizzle swizzles[] = {
        {"gfx942", 1u << 31, 0, 4, 8, false},
        {"gfx942", 1u << 31, 3 << 21, 4, 64, false},
        {"gfx942", 1u << 31, 1 << 21 | 1 << 23, 4, 16, true},
        {"gfx1151", 1u << 30, 1 << 21, 4, 16, false},
        {"gfx1151", 3u << 30, 2 << 21, 16, 32, false},
        {"gfx1201", 2u << 30, 1 << 21 | 1 << 23, 8, 16, true},
    };
    for (size_t i = 0; i < sizeof swizzles / sizeof *swizzles; i++) {
        const swizzle *s = &swizzles[i];
        bool is_gfx9 = s->arch[3] == '9', is_gfx12 = !strcmp(s->arch, "gfx1201");
        char source[128];
        size_t size;
        snprintf(source, sizeof source, "buffer_load_%s v20, v[2:3], s[8:11], %s idxen offen\n",
                 is_gfx9 ? "dword" : "b32", is_gfx12 ? "null" : "0");
        uint8_t *code = assemble(s->arch, source, &size);
        start(s->arch);
        for (unsigned round = 0; round < ROUNDS; round++) {
            randomise_all(round);
            set_descriptor(16, 200, s->word1, s->word3);
            for (unsigned lane = 0; lane < SIM_LANES; lane++) {
                t->wave.v[2][lane] = (uint32_t)next_random() % 220;
                t->wave.v[3][lane] = (uint32_t)next_random() % 4 * 4;
            }
            execute(s->arch, code, size, round);
            check_swizzle(s);
        }
        free(code);
    }
}

// ---- scalar stores and atomics

static void check_scalar_memory(uint64_t address) {
    uint32_t *m = (uint32_t *)(void *)(model + (address - guest));
    const uint32_t *s = t->before.s, *got = t->wave.s;
    m[0] = s[20], m[1] = s[21];
    memcpy(m + 2, s + 20, 16);
    assert_int_equal(got[24], m[8]);
    m[8] = (int32_t)m[8] < (int32_t)s[24] ? m[8] : s[24];
    assert_int_equal(got[26], m[9]);
    m[9] = m[9] == s[27] ? s[26] : m[9];
    uint64_t wide, data = s[28] | (uint64_t)s[29] << 32;
    memcpy(&wide, m + 10, 8);
    assert_true((got[28] | (uint64_t)got[29] << 32) == wide);
    wide += data;
    memcpy(m + 10, &wide, 8);
    assert_int_equal(got[30], m[12]);
    m[12] ^= s[30];
    assert_int_equal(got[31], 0); // outside the buffer
    assert_memory_equal(memory, model, BYTES);
}

static void test_scalar_memory(void **) {
    static const char *const archs[] = {"gfx90a", "gfx942"};
    for (size_t a = 0; a < 2; a++) {
        size_t size;
        uint8_t *code = assemble(archs[a],
                                 "s_store_dwordx2 s[20:21], s[2:3], 0x0\n"
                                 "s_buffer_store_dwordx4 s[20:23], s[8:11], 0x8\n"
                                 "s_buffer_store_dword s20, s[8:11], 0x40\n"
                                 "s_atomic_smin s24, s[2:3], 0x20 glc\n"
                                 "s_atomic_cmpswap s[26:27], s[2:3], 0x24 glc\n"
                                 "s_atomic_add_x2 s[28:29], s[2:3], 0x28 glc\n"
                                 "s_buffer_atomic_xor s30, s[8:11], 0x30 glc\n"
                                 "s_buffer_atomic_swap s31, s[8:11], 0x40 glc\n",
                                 &size);
        start(archs[a]);
        for (unsigned round = 0; round < ROUNDS; round++) {
            randomise_all(round);
            uint64_t address = guest + 64 * (next_random() % 900);
            memcpy(&t->wave.s[2], &address, sizeof address);
            set_descriptor(0, 64, 0, 0);
            memcpy(&t->wave.s[SRD], &address, sizeof address);
            if (round % 2) {
                t->wave.s[27] = (uint32_t)at(memory, address - guest + 36, 4);
            }
            execute(archs[a], code, size, round);
            check_scalar_memory(address);
        }
        free(code);
    }
}

static void test_narrow_scalar_loads(void **) {
    size_t size;
    uint8_t *code =
        assemble("gfx1201",
                 "s_buffer_load_i8 s20, s[8:11], 0x1\n s_buffer_load_u8 s21, s[8:11], 0x3f\n"
                 "s_buffer_load_i16 s22, s[8:11], 0x2\n s_buffer_load_u16 s23, s[8:11], 0x3f\n",
                 &size);
    start("gfx1201");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise_all(round);
        set_descriptor(0, 64, 0, 0);
        execute("gfx1201", code, size, round);
        assert_int_equal((int32_t)t->wave.s[20], (int8_t)model[1]);
        assert_int_equal(t->wave.s[21], model[63]);
        assert_int_equal((int32_t)t->wave.s[22], (int16_t)at(model, 2, 2));
        assert_int_equal(t->wave.s[23], 0); // half of it is outside
    }
    free(code);
}

// ---- RDNA's own forms

/** A 16 x 16 matrix is read by rows; lane l gets column l % 16, eight rows of it. */
static void test_transposing_loads(void **) {
    size_t size;
    uint8_t *code = assemble("gfx1201",
                             "global_load_tr_b128 v[20:23], v[2:3], off\n"
                             "global_load_tr_b64 v[24:25], v[4:5], off\n",
                             &size);
    start("gfx1201");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise_all(round);
        for (unsigned lane = 0; lane < 32;
             lane++) { // addresses as published kernels for gfx1201 give them
            uint64_t halves = guest + (8 * (lane / 16) + lane % 8) * 64 + lane / 8 % 2 * 16;
            uint64_t bytes = guest + 4096 + ((lane / 8) * 4 + (lane & 3)) * 48 + (lane & 4 ? 8 : 0);
            t->wave.v[2][lane] = (uint32_t)halves, t->wave.v[3][lane] = (uint32_t)(halves >> 32);
            t->wave.v[4][lane] = (uint32_t)bytes, t->wave.v[5][lane] = (uint32_t)(bytes >> 32);
        }
        t->wave.exec = UINT32_MAX;
        execute("gfx1201", code, size, round);
        for (unsigned lane = 0; lane < 32; lane++) {
            for (unsigned e = 0; e < 8; e++) {
                unsigned row = 8 * (lane / 16) + e, column = lane % 16;
                uint32_t half = t->wave.v[20 + e / 2][lane] >> 16 * (e % 2) & 0xffff;
                uint32_t byte = t->wave.v[24 + e / 4][lane] >> 8 * (e % 4) & 0xff;
                assert_int_equal(half, at(model, row * 64 + column * 2, 2));
                assert_int_equal(byte, model[4096 + row * 48 + column]);
            }
        }
    }
    free(code);
}

static void test_blocks(void **) {
    size_t size;
    uint8_t *code = assemble("gfx1201",
                             "global_store_block v[2:3], v[40:71], off offset:8\n"
                             "global_load_block v[2:33], v[2:3], off offset:8\n",
                             &size);
    start("gfx1201");
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise_all(round);
        t->wave.m0 = (uint32_t)next_random();
        for (unsigned lane = 0; lane < 32; lane++) {
            uint64_t address = guest + 256 * lane;
            t->wave.v[2][lane] = (uint32_t)address, t->wave.v[3][lane] = (uint32_t)(address >> 32);
        }
        execute("gfx1201", code, size, round);
        for (unsigned i = 0; i < 32 * 32; i++) {
            unsigned lane = i / 32, reg = i % 32;
            bool moved = active(lane) && t->before.m0 >> reg & 1;
            if (moved) {
                memcpy(model + 256 * lane + 8 + 4 * reg, &t->before.v[40 + reg][lane], 4);
            }
            uint32_t want = moved ? t->before.v[40 + reg][lane] : t->before.v[2 + reg][lane];
            assert_int_equal(t->wave.v[2 + reg][lane], want);
        }
        assert_memory_equal(memory, model, BYTES);
    }
    free(code);
}

static void test_addtid(void **) {
    static const char *const archs[] = {"gfx1151", "gfx1201"};
    for (size_t a = 0; a < 2; a++) {
        size_t size;
        uint8_t *code = assemble(archs[a],
                                 "global_load_addtid_b32 v20, s[2:3] offset:8\n"
                                 "global_store_addtid_b32 v4, s[2:3] offset:512\n",
                                 &size);
        start(archs[a]);
        for (unsigned round = 0; round < ROUNDS; round++) {
            randomise_all(round);
            memcpy(&t->wave.s[2], &guest, sizeof guest);
            execute(archs[a], code, size, round);
            for (unsigned lane = 0; lane < 32; lane++) {
                uint32_t want =
                    active(lane) ? (uint32_t)at(model, 8 + 4 * lane, 4) : t->before.v[20][lane];
                assert_int_equal(t->wave.v[20][lane], want);
            }
            for (unsigned lane = 0; lane < 32; lane++) {
                if (active(lane)) {
                    memcpy(model + 512 + 4 * lane, &t->before.v[4][lane], 4);
                }
            }
            assert_memory_equal(memory, model, BYTES);
        }
        free(code);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_typed_loads),
        cmocka_unit_test(test_typed_stores),
        cmocka_unit_test(test_typed_halves),
        cmocka_unit_test(test_swizzles),
        cmocka_unit_test(test_scalar_memory),
        cmocka_unit_test(test_narrow_scalar_loads),
        cmocka_unit_test(test_transposing_loads),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_addtid),
    };
    return cmocka_run_group_tests(tests, nullptr, tear_down);
}
