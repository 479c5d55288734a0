// SPDX-License-Identifier: Apache-2.0
// Opcode look-up: every family's table, sorted once by mnemonic, for the best instruction set this host has.
#include "isa.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// A new family of exec/ is one line here.
#define FAMILIES(X, isa)                                                                           \
    X(sim_ops_salu, isa)                                                                           \
    X(sim_ops_smem_atomics, isa)                                                                   \
    X(sim_ops_smem, isa)                                                                           \
    X(sim_ops_flow, isa)                                                                           \
    X(sim_ops_flow_rdna, isa)                                                                      \
    X(sim_ops_salu_rdna, isa)                                                                      \
    X(sim_ops_valu_rdna, isa)                                                                      \
    X(sim_ops_valu_rdna16, isa)                                                                    \
    X(sim_ops_lane_rdna, isa)                                                                      \
    X(sim_ops_fork, isa)                                                                           \
    X(sim_ops_valu_rare, isa)                                                                      \
    X(sim_ops_vmem_rdna, isa)                                                                      \
    X(sim_ops_typed, isa)                                                                          \
    X(sim_ops_vmem, isa)                                                                           \
    X(sim_ops_atomics, isa)                                                                        \
    X(sim_ops_valu_int, isa)                                                                       \
    X(sim_ops_valu_f32, isa)                                                                       \
    X(sim_ops_valu_minmax, isa)                                                                    \
    X(sim_ops_valu_cmp, isa)                                                                       \
    X(sim_ops_valu_carry, isa)                                                                     \
    X(sim_ops_lds, isa)                                                                            \
    X(sim_ops_lane, isa)                                                                           \
    X(sim_ops_valu_trans, isa)                                                                     \
    X(sim_ops_valu_div, isa)                                                                       \
    X(sim_ops_valu_f64, isa)                                                                       \
    X(sim_ops_valu_cvt, isa)                                                                       \
    X(sim_ops_valu_fp8, isa)                                                                       \
    X(sim_ops_valu_scale, isa)                                                                     \
    X(sim_ops_valu_16, isa)                                                                        \
    X(sim_ops_valu_packed, isa)                                                                    \
    X(sim_ops_valu_cdna, isa)                                                                      \
    X(sim_ops_mfma, isa)                                                                           \
    X(sim_ops_wmma, isa)

#define DECLARE(name, isa) extern const sim_opcode_table SIM_CONCAT(name, isa);
#define ADDRESS(name, isa) &SIM_CONCAT(name, isa),
FAMILIES(DECLARE, base)
FAMILIES(DECLARE, v4)
static const sim_opcode_table *const families_base[] = {FAMILIES(ADDRESS, base)};
static const sim_opcode_table *const families_v4[] = {FAMILIES(ADDRESS, v4)};
static_assert(sizeof families_base == sizeof families_v4);
enum { NUM_FAMILIES = sizeof families_base / sizeof *families_base };

static const sim_opcode *
    *sorted; // by mnemonic; one mnemonic may have several lines, for different chips
static size_t num_sorted;
static pthread_once_t sorted_once = PTHREAD_ONCE_INIT;

static int compare(const void *a, const void *b) {
    const sim_opcode *const *x = a, *const *y = b;
    return strcmp((*x)->mnemonic, (*y)->mnemonic);
}

static void sort_tables(void) {
    const sim_opcode_table *const *families =
        __builtin_cpu_supports("x86-64-v4") ? families_v4 : families_base;
    size_t total = 0, n = 0;
    for (size_t f = 0; f < NUM_FAMILIES; f++) {
        total += families[f]->count;
    }
    sorted = malloc(total * sizeof *sorted);
    if (!sorted) {
        return;
    }
    for (size_t f = 0; f < NUM_FAMILIES; f++) {
        for (size_t i = 0; i < families[f]->count; i++) {
            sorted[n++] = &families[f]->opcodes[i];
        }
    }
    qsort(sorted, n, sizeof *sorted, compare);
    num_sorted = n;
}

const sim_opcode *sim_opcode_find(const char *mnemonic, size_t length, sim_arch arch) {
    pthread_once(&sorted_once, sort_tables);
    size_t low = 0, high = num_sorted; // the first line that is not below the mnemonic
    while (low < high) {
        size_t mid = (low + high) / 2;
        const char *name = sorted[mid]->mnemonic;
        int order = strncmp(name, mnemonic, length);
        if (order < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    for (; low < num_sorted && !strncmp(sorted[low]->mnemonic, mnemonic, length); low++) {
        if (!sorted[low]->mnemonic[length] && (sorted[low]->archs >> arch & 1)) {
            return sorted[low];
        }
    }
    return nullptr;
}

const sim_opcode *sim_opcode_portable(const sim_opcode *opcode) {
    for (size_t f = 0; f < NUM_FAMILIES; f++) {
        uintptr_t offset = (uintptr_t)opcode - (uintptr_t)families_v4[f]->opcodes;
        if (offset < families_v4[f]->count * sizeof *opcode) {
            return families_base[f]->opcodes + offset / sizeof *opcode;
        }
    }
    return opcode; // from the portable tables already
}
