// SPDX-License-Identifier: Apache-2.0
// Words of LDS whose bytes belong to several waves: programs in pairs, as in check_test.c. Only
// accesses to the same byte meet.
#include "check_testing.h"

// A word of zeros at address 0, of which all waves know; the wave in v3, zero in v4. On gfx12 the
// last wave to come to a barrier goes on first; behind two barriers, the first of two waves does.
#define ZERO                                                                                       \
    "v_lshrrev_b32_e32 v3, 6, v0\n v_mov_b32_e32 v4, 0\n ds_write_b32 v4, v4\n"                    \
    "s_waitcnt lgkmcnt(0)\n s_barrier\n s_barrier\n"
#define WAIT "s_waitcnt lgkmcnt(0)\n"
#define WAVE_1 "s_cmp_eq_u32 s6, 0\n s_cbranch_scc1 1f\n" // up to 1:
#define WAVE_0 "s_cmp_lg_u32 s6, 0\n s_cbranch_scc1 1f\n"

static void test_race(void **) {
    static const pair pairs[] = {
        {"writes of bytes", EVERY, 2, ZERO "ds_write_b8 v3, v2\n ds_write_b8 v3, v2 offset:1",
         ZERO "v_add_u32_e32 v3, v3, v3\n ds_write_b8 v3, v2\n ds_write_b8 v3, v2 offset:1",
         "race on LDS: wave 1 writes 0x1, which wave 0 wrote at"},
        {"read of another wave's byte", EVERY, 2,
         ZERO "ds_write_b8 v3, v2\n v_xor_b32_e32 v5, 1, v3\n ds_read_u8 v6, v5",
         ZERO "ds_write_b8 v3, v2\n v_xor_b32_e32 v5, 1, v3\n ds_read_u8 v6, v3",
         "race on LDS: wave 1 writes 0x1, which wave 0 read at"},
        {"halves", EVERY, 2,
         ZERO "v_add_u32_e32 v3, v3, v3\n ds_write_b16 v3, v2\n v_xor_b32_e32 v5, 2, v3\n" WAVE_1
              "ds_read_u16 v6, v5\n 1:",
         ZERO "v_add_u32_e32 v3, v3, v3\n ds_write_b16 v3, v2\n v_xor_b32_e32 v5, 2, v3\n" WAVE_1
              "ds_read_u16 v6, v3\n 1:",
         "race on LDS: wave 1 reads 0x0, which wave 0 wrote at"},
        {"a byte of a half", EVERY, 2,
         ZERO WAVE_0 "ds_write_b16 v4, v2 offset:2\n s_endpgm\n 1: ds_write_b8 v4, v2 offset:3",
         ZERO WAVE_0 "ds_write_b16 v4, v2 offset:2\n s_endpgm\n 1: ds_write_b8 v4, v2 offset:1",
         "race on LDS: wave 1 writes 0x3, which wave 0 wrote at"},
        {"word read behind a byte written", EVERY, 2,
         ZERO WAVE_0 "ds_write_b8 v4, v2 offset:2\n" WAIT "1:\n" WAVE_1 "ds_read_b32 v5, v4\n 1:",
         ZERO WAVE_0 "ds_write_b8 v4, v2 offset:2\n" WAIT "1:\n s_barrier\n" WAVE_1
                     "ds_read_b32 v5, v4\n 1:",
         "race on LDS: wave 1 reads 0x2, which wave 0 wrote at"},
        {"word written behind a byte read", EVERY, 2,
         ZERO WAVE_0 "ds_read_u8 v5, v4 offset:3\n" WAIT "1:\n" WAVE_1 "ds_write_b32 v4, v2\n 1:",
         ZERO WAVE_0 "ds_read_u8 v5, v4 offset:3\n" WAIT "1:\n s_barrier\n" WAVE_1
                     "ds_write_b32 v4, v2\n 1:",
         "race on LDS: wave 1 writes 0x3, which wave 0 read at"},
        {"byte read behind a word written", EVERY, 2,
         ZERO WAVE_0 "ds_write_b32 v4, v2\n" WAIT "1:\n" WAVE_1 "ds_read_u8 v5, v4 offset:1\n 1:",
         ZERO WAVE_0 "ds_write_b32 v4, v2\n" WAIT "1:\n s_barrier\n" WAVE_1
                     "ds_read_u8 v5, v4 offset:1\n 1:",
         "race on LDS: wave 1 reads 0x1, which wave 0 wrote at"},
        {"a wave's own byte again and again", EVERY, 4,
         ZERO "v_and_b32_e32 v3, 2, v3\n ds_read_u8 v5, v3\n" WAIT "v_add_u32_e32 v5, v5, v2\n"
              "ds_write_b8 v3, v5\n ds_read_u8 v5, v3\n" WAIT "ds_write_b8 v3, v2",
         ZERO "ds_read_u8 v5, v3\n" WAIT "v_add_u32_e32 v5, v5, v2\n"
              "ds_write_b8 v3, v5\n ds_read_u8 v5, v3\n" WAIT "ds_write_b8 v3, v2",
         "race on LDS: wave "},
        {"atomic over a byte", EVERY, 2,
         ZERO WAVE_0 "ds_write_b8 v4, v2 offset:2\n" WAIT "1:\n" WAVE_1 "ds_add_u32 v4, v2\n 1:",
         ZERO WAVE_0 "ds_write_b8 v4, v2 offset:2\n" WAIT "1:\n s_barrier\n" WAVE_1
                     "ds_add_u32 v4, v2\n 1:",
         "race on LDS: wave 1 reads 0x2, which wave 0 wrote at"},
    };
    CHECK_PAIRS(pairs, SIM_CHECK_RACE);
}

/** Bytes that two waves write are judged by their values, each byte by its own. */
static void test_equal_values(void **) {
    static const pair pairs[] = {
        {"the last byte differs", EVERY, 2,
         ZERO "v_mov_b32_e32 v5, 5\n" WAVE_0 "ds_write_b8 v4, v5\n ds_write_b16 v4, v4 offset:1\n"
              "ds_write_b8 v4, v4 offset:3\n s_endpgm\n"
              "1: v_add_u32_e32 v5, 0x7000000, v5\n ds_write_b32 v4, v5",
         ZERO "v_mov_b32_e32 v5, 5\n" WAVE_0 "ds_write_b8 v4, v5\n ds_write_b16 v4, v4 offset:1\n"
              "ds_write_b8 v4, v4 offset:3\n s_endpgm\n 1: ds_write_b32 v4, v5",
         "race on LDS: wave 1 writes 0x3, which wave 0 wrote at"},
        {"one byte equal, one of the wave's own", EVERY, 2,
         ZERO "v_and_b32_e32 v6, 1, v0\n v_add_u32_e32 v5, 5, v3\n" WAVE_0 "s_mov_b64 exec, 1\n"
              "ds_write_b8 v4, v5\n s_endpgm\n 1: ds_write_b8 v6, v5",
         ZERO "v_and_b32_e32 v6, 1, v0\n v_add_u32_e32 v5, 5, v6\n" WAVE_0 "s_mov_b64 exec, 1\n"
              "ds_write_b8 v4, v5\n s_endpgm\n 1: ds_write_b8 v6, v5",
         "race on LDS: wave 1 writes 0x0, which wave 0 wrote at"},
        {"the upper half of the lanes differs", EVERY, 2,
         "v_and_b32_e32 v5, 0xfc, v1\n v_and_b32_e32 v6, 32, v0\n v_lshrrev_b32_e32 v3, 6, v0\n"
         "v_mul_u32_u24_e32 v6, v6, v3\n ds_write_b32 v5, v6",
         "v_and_b32_e32 v5, 0xfc, v1\n v_and_b32_e32 v6, 32, v0\n ds_write_b32 v5, v6",
         "race on LDS: wave 1 writes 0x80, which wave 0 wrote at"},
    };
    CHECK_PAIRS(pairs, SIM_CHECK_RACE);
}

/** No wait for another wave's byte is needed to use the one beside it. */
static void test_wait(void **) {
    static const pair pairs[] = {
        {"byte of another wave", EVERY, 2,
         ZERO "ds_write_b8 v3, v2\n s_barrier\n v_xor_b32_e32 v5, 1, v3\n ds_read_u8 v6, v5\n" WAIT,
         ZERO "ds_write_b8 v3, v2\n s_barrier\n v_xor_b32_e32 v5, 1, v3\n ds_read_u8 v6, v3\n" WAIT,
         "writes there has arrived: that wave did not wait before the barrier"},
    };
    CHECK_PAIRS(pairs, SIM_CHECK_WAIT);
}

// ---- what comes late

/** Wave 1 writes 0xff to bytes and does not wait before the barrier, behind which wave 0 uses the
 *  word and leaves in v7 what it has found. In v8 is what it finds behind wave 1's wait. */
typedef struct lateness {
    const char *name, *write, *use;
    uint32_t early, later; // v7, v8
} lateness;

static void check_lateness(const chip *c, const lateness *l, const char *reg, uint32_t want) {
    char body[2048];
    snprintf(body, sizeof body,
             ZERO "v_mov_b32_e32 v5, 0x3020100\n v_mov_b32_e32 v6, -1\n v_mov_b32_e32 v9, 0x2000\n"
                  "ds_write_b32 v4, v5\n" WAIT "s_barrier\n" WAVE_1 "%s\n 1: s_barrier\n" WAVE_0
                  "%s\n 1:" WAIT "s_barrier\n" WAVE_0 "ds_read_b32 v8, v4\n" WAIT
                  "global_store_dword v9, %s, s[4:5]\n 1:",
             l->write, l->use, reg);
    program p = make_program(c, body);
    outcome out = run_program(&p, 2, SIM_CHECK_ALL);
    if (out.ok || out.result != want) {
        fail_msg("%s, %s: %s is 0x%x where 0x%x should be; '%s'", c->name, l->name, reg, out.result,
                 want, out.text);
    }
    free(p.code);
}

/** Of a word, only those bytes are old that are used too early, until they arrive. */
static void test_late(void **) {
    static const lateness cases[] = {
        {"a byte that has arrived and one that has not",
         "ds_write_b8 v4, v6 offset:1\n" WAIT "ds_write_b8 v4, v6 offset:2", "ds_read_b32 v7, v4",
         0x302ff00, 0x3ffff00},
        {"a half", "ds_write_b16 v4, v6", "ds_read_b32 v7, v4", 0x3020100, 0x302ffff},
        {"a byte of a word", "ds_write_b32 v4, v6", "ds_read_u8 v7, v4 offset:2", 2, UINT32_MAX},
        {"a byte, and then the word", "ds_write_b32 v4, v6",
         "ds_read_u8 v7, v4 offset:2\n ds_read_b32 v7, v4", 0x3020100, UINT32_MAX},
        {"a word, and then a byte", "ds_write_b32 v4, v6",
         "ds_read_b32 v7, v4\n ds_read_u8 v7, v4 offset:1", 1, UINT32_MAX},
        {"a word, a byte of it, and another word",
         "ds_write_b32 v4, v6\n ds_write_b32 v4, v6 offset:4",
         "ds_read_b32 v7, v4 offset:4\n ds_read_b32 v7, v4\n ds_read_u8 v7, v4 offset:1\n"
         "v_mov_b32_e32 v4, 4",
         1, UINT32_MAX},
        {"a byte beside one written since", "ds_write_b8 v4, v6 offset:2",
         "ds_write_b8 v4, v6 offset:1\n ds_read_u8 v7, v4 offset:2\n ds_read_u8 v7, v4 offset:1",
         0xff, 0x3ffff00},
    };
    for (size_t i = 0; i < NUM_CHIPS * sizeof cases / sizeof *cases; i++) {
        const lateness *l = &cases[i / NUM_CHIPS];
        check_lateness(&chips[i % NUM_CHIPS], l, "v7", l->early);
        check_lateness(&chips[i % NUM_CHIPS], l, "v8", l->later);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_race),
                                       cmocka_unit_test(test_equal_values),
                                       cmocka_unit_test(test_wait), cmocka_unit_test(test_late)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
