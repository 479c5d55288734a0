// SPDX-License-Identifier: Apache-2.0
// Tests of swizzled buffers and of lanes as indices, against a model of bytes written for the test.
#include "memory_testing.h"

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

/** Tests that swizzling acts where lanes have an index: on gfx9 by ADD_TID_ENABLE, on RDNA by that
 *  or by the instruction. */
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_swizzles)};
    return cmocka_run_group_tests(tests, nullptr, tear_down);
}
