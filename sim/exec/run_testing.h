// SPDX-License-Identifier: Apache-2.0
// For tests by formulas: runs a source from many random states, in the best build of exec/
// and the portable one, and has each checked.
#ifndef SIM_RUN_TESTING_H
#define SIM_RUN_TESTING_H

#include "exec_testing.h"

static test_wave *t;

enum { ROUNDS = 60 };

static inline void start(const char *arch) {
    free(t);
    t = make_wave(arch);
    t->wave.wave32 = sim_chip_by_name(arch)->wave_size == 32;
}

/** Runs `source` for many random states, in either build, each time `check`ing. */
static inline void run(const char *arch, const char *source, void (*prepare)(void),
                       void (*check)(void)) {
    size_t size;
    uint8_t *text = assemble(arch, source, &size);
    start(arch);
    for (unsigned round = 0; round < ROUNDS; round++) {
        const uint64_t exec = random_exec(round / 2);
        randomise(t, t->wave.wave32 ? (uint32_t)exec : exec);
        for (unsigned i = 0; i < TEST_LDS_BYTES; i++)
            t->lds[i] = (uint8_t)next_random();
        if (prepare)
            prepare();
        memcpy(&t->before, &t->wave, sizeof t->wave);
        memcpy(t->lds_before, t->lds, sizeof t->lds);
        for (size_t at = 0; at < size && t->wave.state == SIM_RUNNING;) {
            sim_inst inst = decode_at(arch, text, size, at);
            (round & 1 ? inst.exec : sim_opcode_portable(inst.opcode)->exec)(&t->wave, &inst);
            at += inst.bytes;
        }
        assert_int_equal(t->wave.state, SIM_RUNNING);
        check();
    }
    free(text);
}

static void (*check_lane)(unsigned lane);

static inline void check_lanes(void) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        if (t->before.exec >> lane & 1)
            check_lane(lane);
        else
            assert_int_equal(t->wave.v[20][lane], t->before.v[20][lane]);
}

/** Runs `source` as run does, with a check of each active lane. v20 of the other lanes must keep
 *  its value. */
static inline void run_lanes(const char *arch, const char *source, void (*prepare)(void),
                             void (*check)(unsigned lane)) {
    check_lane = check;
    run(arch, source, prepare, check_lanes);
}

#define S(i) (t->wave.s[i])
#define OLD(i) (t->before.s[i])

static inline uint64_t pair(const uint32_t *s, unsigned i) {
    return s[i] | (uint64_t)s[i + 1] << 32;
}

static inline uint64_t wide(const sim_wave *w, unsigned reg, unsigned lane) {
    return w->v[reg][lane] | (uint64_t)w->v[reg + 1][lane] << 32;
}

#define ACTIVE_LANES(lane)                                                                         \
    for (unsigned lane = 0; lane < SIM_LANES; lane++)                                              \
        if (t->before.exec >> lane & 1)

static inline uint32_t before(int reg, unsigned lane) {
    return t->before.v[reg][lane];
}

static inline void expect(int reg, unsigned lane, uint32_t want) {
    if (t->wave.v[reg][lane] != want) {
        fail_msg("v%d lane %u: got %08x, want %08x (v1 %08x, v2 %08x, v3 %08x)", reg, lane,
                 t->wave.v[reg][lane], want, before(1, lane), before(2, lane), before(3, lane));
    }
}

static inline int tear_down(void **) {
    free(t);
    return 0;
}

#endif
