// SPDX-License-Identifier: Apache-2.0
// The steps of atomics, also on the host's memory: they make the new value from the old, the data,
// and the value to compare with, in whose place some have a mask.
#ifndef SIM_STEPS_H
#define SIM_STEPS_H

#include "../exec.h"

typedef uint32_t (*step32)(uint32_t old, uint32_t data, uint32_t compare);
typedef uint64_t (*step64)(uint64_t old, uint64_t data, uint64_t compare);

// clang-format off
// inc counts up to the data, then starts at 0 again; dec counts down to 0, then starts at the data
// again. mskor clears the bits of the mask and sets those of the data.
#define STEPS(X) \
    X(add, old + data) X(sub, old - data) X(rsub, data - old) X(swap, data) X(and, old & data) X(or, old | data) \
    X(xor, old ^ data) X(umin, old < data ? old : data) X(umax, old > data ? old : data) \
    X(inc, old >= data ? 0 : old + 1) X(dec, old == 0 || old > data ? data : old - 1) \
    X(cmpswap, old == compare ? data : old) X(mskor, (old & ~compare) | data)
#define DEFINE_STEP(name, meaning) \
    static inline uint32_t name##32([[maybe_unused]] uint32_t old, uint32_t data, [[maybe_unused]] uint32_t compare) { \
        return meaning; \
    } \
    static inline uint64_t name##64([[maybe_unused]] uint64_t old, uint64_t data, [[maybe_unused]] uint64_t compare) { \
        return meaning; \
    }
STEPS(DEFINE_STEP)
// clang-format on

static inline uint32_t smin32(uint32_t old, uint32_t data, uint32_t) {
    return (int32_t)old < (int32_t)data ? old : data;
}
static inline uint32_t smax32(uint32_t old, uint32_t data, uint32_t) {
    return (int32_t)old > (int32_t)data ? old : data;
}
static inline uint64_t smin64(uint64_t old, uint64_t data, uint64_t) {
    return (int64_t)old < (int64_t)data ? old : data;
}
static inline uint64_t smax64(uint64_t old, uint64_t data, uint64_t) {
    return (int64_t)old > (int64_t)data ? old : data;
}

static inline uint32_t update32(uint32_t *at, step32 step, uint32_t data, uint32_t compare) {
    uint32_t old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &old, step(old, data, compare), true, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
    }
    return old;
}

static inline uint64_t update64(uint64_t *at, step64 step, uint64_t data, uint64_t compare) {
    uint64_t old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &old, step(old, data, compare), true, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
    }
    return old;
}

#endif
