// SPDX-License-Identifier: Apache-2.0
// Memory instructions that compilers rarely emit: swizzled buffers, scalar stores and atomics,
// transposing loads, blocks of registers. Each against a model of bytes written for the test;
// typed_test.c has typed buffers.
#include "memory_testing.h"

// ---- swizzled buffers, lanes as indices

enum { STRIDE = 16, RECORDS = 200 };

typedef struct swizzle {
    const char *arch;
    uint32_t word1, word3, element, index_stride; // element 0: nothing is swizzled
    bool has_index, adds_lane, is_bounded;
} swizzle;

static uint32_t swizzled(const swizzle *s, uint32_t index, uint32_t offset) {
    const uint32_t rows = index / s->index_stride * s->index_stride; // records in the blocks before
    const uint32_t column = index - rows, part = offset / s->element * s->element;
    return rows * STRIDE + part * s->index_stride + column * s->element + offset - part;
}

static void check_swizzle(const swizzle *s) {
    const uint32_t soffset = t->before.s[7];
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const uint32_t given = s->has_index ? t->before.v[2][lane] : 0,
                       index = given + (s->adds_lane ? lane : 0), offset = t->before.v[3][lane];
        const uint32_t place =
            soffset + (s->element ? swizzled(s, index, offset) : index * STRIDE + offset);
        const bool fits = s->has_index ? given < RECORDS : offset + 4 + soffset <= RECORDS;
        const uint32_t want = fits || !s->is_bounded ? (uint32_t)at(model, place, 4) : 0;
        if (active(lane))
            assert_int_equal(t->wave.v[20][lane], want);
    }
}

static void make_swizzle_source(const swizzle *s, char *source, size_t bytes) {
    const bool is_gfx9 = s->arch[3] == '9';
    snprintf(source, bytes, "buffer_load_%s v20, %s, s[8:11], s7 %s offen\n",
             is_gfx9 ? "dword" : "b32", s->has_index ? "v[2:3]" : "v3",
             s->has_index ? "idxen" : "");
}

static void run_swizzle(const swizzle *s) {
    char source[128];
    size_t size;
    make_swizzle_source(s, source, sizeof source);
    uint8_t *code = assemble(s->arch, source, &size);
    start(s->arch);
    for (unsigned round = 0; round < ROUNDS; round++) {
        randomise_all(round);
        set_descriptor(STRIDE, RECORDS, s->word1, s->word3);
        t->wave.s[7] = 8;
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            t->wave.v[2][lane] = (uint32_t)next_random() % (RECORDS + 20);
            t->wave.v[3][lane] = (uint32_t)next_random() % (s->has_index ? 4 : RECORDS / 4) * 4;
        }
        execute(s->arch, code, size, round);
        check_swizzle(s);
    }
    free(code);
}

/** Swizzling acts where lanes have an index: on gfx9 by ADD_TID_ENABLE, on RDNA by that or by the
 *  instruction. */
static void test_swizzles(void **) {
    constexpr uint32_t adds_tid = 1 << 23, raw = 3 << 28, indexed = 1 << 28;
    static const swizzle swizzles[] = {
        {"gfx942", 1u << 31, 0, 0, 8, true, false, true},
        {"gfx942", 1u << 31, 3 << 21, 0, 64, false, false, true},
        {"gfx950", 3u << 30, 0, 0, 8, false, false, true},
        {"gfx942", 1u << 31, 1 << 21 | adds_tid, 4, 16, true, true, true},
        {"gfx950", 1u << 31, 3 << 21 | adds_tid, 4, 64, false, true, false},
        {"gfx942", 0, adds_tid, 0, 8, false, true, false},
        {"gfx942", 0, adds_tid, 0, 8, true, false, true},
        {"gfx1151", 1u << 30, 1 << 21, 4, 16, true, false, true},
        {"gfx1151", 3u << 30, 2 << 21, 16, 32, true, false, true},
        {"gfx1151", 3u << 30, 2 << 21 | raw, 0, 32, false, false, true},
        {"gfx1201", 2u << 30, 1 << 21 | adds_tid, 8, 16, true, false, true},
        {"gfx1201", 2u << 30, 1 << 21 | adds_tid | indexed, 8, 16, false, true, false},
    };
    for (size_t i = 0; i < sizeof swizzles / sizeof *swizzles; i++)
        run_swizzle(&swizzles[i]);
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
            if (round % 2)
                t->wave.s[27] = (uint32_t)at(memory, address - guest + 36, 4);
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
            const uint64_t halves = guest + (8 * (lane / 16) + lane % 8) * 64 + lane / 8 % 2 * 16;
            const uint64_t bytes =
                guest + 4096 + ((lane / 8) * 4 + (lane & 3)) * 48 + (lane & 4 ? 8 : 0);
            t->wave.v[2][lane] = (uint32_t)halves, t->wave.v[3][lane] = (uint32_t)(halves >> 32);
            t->wave.v[4][lane] = (uint32_t)bytes, t->wave.v[5][lane] = (uint32_t)(bytes >> 32);
        }
        t->wave.exec = UINT32_MAX;
        execute("gfx1201", code, size, round);
        for (unsigned lane = 0; lane < 32; lane++) {
            for (unsigned e = 0; e < 8; e++) {
                const unsigned row = 8 * (lane / 16) + e, column = lane % 16;
                const uint32_t half = t->wave.v[20 + e / 2][lane] >> 16 * (e % 2) & 0xffff;
                const uint32_t byte = t->wave.v[24 + e / 4][lane] >> 8 * (e % 4) & 0xff;
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
            const uint64_t address = guest + 256 * lane;
            t->wave.v[2][lane] = (uint32_t)address, t->wave.v[3][lane] = (uint32_t)(address >> 32);
        }
        execute("gfx1201", code, size, round);
        for (unsigned i = 0; i < 32 * 32; i++) {
            const unsigned lane = i / 32, reg = i % 32;
            const bool moved = active(lane) && t->before.m0 >> reg & 1;
            if (moved)
                memcpy(model + 256 * lane + 8 + 4 * reg, &t->before.v[40 + reg][lane], 4);
            const uint32_t want = moved ? t->before.v[40 + reg][lane] : t->before.v[2 + reg][lane];
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
            for (unsigned lane = 0; lane < 32; lane++)
                if (active(lane))
                    memcpy(model + 512 + 4 * lane, &t->before.v[4][lane], 4);
            assert_memory_equal(memory, model, BYTES);
        }
        free(code);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swizzles),
        cmocka_unit_test(test_scalar_memory),
        cmocka_unit_test(test_narrow_scalar_loads),
        cmocka_unit_test(test_transposing_loads),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_addtid),
    };
    return cmocka_run_group_tests(tests, nullptr, tear_down);
}
