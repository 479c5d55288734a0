// SPDX-License-Identifier: Apache-2.0
// For the tests of memory instructions: a wave, the guest's memory, and a model of its bytes.
#ifndef SIM_MEMORY_TESTING_H
#define SIM_MEMORY_TESTING_H

#include "../exec_testing.h"

enum { ROUNDS = 16, BYTES = 65536, SRD = 8 };

static test_wave *t;
static uint8_t model[BYTES];
static uint8_t *memory; // host address of the guest's BYTES bytes
static uint64_t guest;

static inline void start(const char *arch) {
    const bool is_first = !t;
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

static inline int tear_down(void **) {
    sim_memory_destroy(t->dispatch.memory);
    free(t);
    return 0;
}

static inline void randomise_all(unsigned round) {
    const uint64_t exec = random_exec(round);
    randomise(t, t->wave.wave32 ? (uint32_t)exec : exec);
    for (unsigned i = 0; i < BYTES; i++)
        memory[i] = (uint8_t)next_random();
    memcpy(model, memory, BYTES);
}

/** Makes s[8:11] a buffer over all of the memory, or less. */
static inline void set_descriptor(uint32_t stride, uint32_t records, uint32_t word1,
                                  uint32_t word3) {
    t->wave.s[SRD] = (uint32_t)guest;
    t->wave.s[SRD + 1] = (uint32_t)(guest >> 32) | stride << 16 | word1;
    t->wave.s[SRD + 2] = records;
    t->wave.s[SRD + 3] = word3;
}

static inline void execute(const char *arch, const uint8_t *text, size_t size, unsigned round) {
    memcpy(&t->before, &t->wave, sizeof t->wave);
    for (size_t at = 0; at < size;) {
        sim_inst inst = decode_at(arch, text, size, at);
        (round & 1 ? inst.exec : sim_opcode_portable(inst.opcode)->exec)(&t->wave, &inst);
        at += inst.bytes;
    }
    assert_int_equal(t->wave.state, SIM_RUNNING);
}

static inline bool active(unsigned lane) {
    return t->before.exec >> lane & 1;
}

static inline uint64_t at(const uint8_t *bytes, uint64_t from, unsigned count) {
    uint64_t value = 0;
    memcpy(&value, bytes + from, count);
    return value;
}

#endif
