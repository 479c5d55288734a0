// SPDX-License-Identifier: Apache-2.0
// Opcode look-up: every family's table, sorted once by mnemonic, for the best instruction set this
// host has or the one that QUERN_SIM names.
#include "../options.h"
#include "isa.h"

#include <stdlib.h>
#include <string.h>

// A new family of exec/ is one line here.
#define FAMILIES(X, isa)                                                                           \
    X(sim_ops_salu_move, isa)                                                                      \
    X(sim_ops_salu_bits, isa)                                                                      \
    X(sim_ops_salu_integer, isa)                                                                   \
    X(sim_ops_salu_float, isa)                                                                     \
    X(sim_ops_compare, isa)                                                                        \
    X(sim_ops_salu_exec, isa)                                                                      \
    X(sim_ops_flow, isa)                                                                           \
    X(sim_ops_fork, isa)                                                                           \
    X(sim_ops_barrier, isa)                                                                        \
    X(sim_ops_mode, isa)                                                                           \
    X(sim_ops_wait, isa)                                                                           \
    X(sim_ops_smem_atomics, isa)                                                                   \
    X(sim_ops_smem, isa)                                                                           \
    X(sim_ops_transpose, isa)                                                                      \
    X(sim_ops_block, isa)                                                                          \
    X(sim_ops_typed, isa)                                                                          \
    X(sim_ops_vmem, isa)                                                                           \
    X(sim_ops_atomics, isa)                                                                        \
    X(sim_ops_lds, isa)                                                                            \
    X(sim_ops_valu_move, isa)                                                                      \
    X(sim_ops_valu_bits, isa)                                                                      \
    X(sim_ops_valu_shift, isa)                                                                     \
    X(sim_ops_valu_integer, isa)                                                                   \
    X(sim_ops_valu_minmax, isa)                                                                    \
    X(sim_ops_valu_sad, isa)                                                                       \
    X(sim_ops_valu_float, isa)                                                                     \
    X(sim_ops_valu_parts, isa)                                                                     \
    X(sim_ops_valu_transcendental, isa)                                                            \
    X(sim_ops_valu_divide, isa)                                                                    \
    X(sim_ops_valu_cube, isa)                                                                      \
    X(sim_ops_valu_convert, isa)                                                                   \
    X(sim_ops_valu_convert_fp8, isa)                                                               \
    X(sim_ops_valu_convert_scaled, isa)                                                            \
    X(sim_ops_valu_pack, isa)                                                                      \
    X(sim_ops_valu_compare, isa)                                                                   \
    X(sim_ops_valu_mask, isa)                                                                      \
    X(sim_ops_valu_lane, isa)                                                                      \
    X(sim_ops_valu_packed, isa)                                                                    \
    X(sim_ops_valu_mix, isa)                                                                       \
    X(sim_ops_valu_dot, isa)                                                                       \
    X(sim_ops_mfma, isa)                                                                           \
    X(sim_ops_wmma, isa)

#define DECLARE(name, isa) extern const sim_opcode_table SIM_CONCAT(name, isa);
#define ADDRESS(name, isa) &SIM_CONCAT(name, isa),
#define COUNT(name, isa) +1
enum { NUM_FAMILIES = FAMILIES(COUNT, ) };

// The tables of each instruction set for which exec/ is built (cmake/sim.cmake), null for others.
#if SIM_HAS_BASE
FAMILIES(DECLARE, base)
#endif
#if SIM_HAS_V3
FAMILIES(DECLARE, v3)
#endif
#if SIM_HAS_V4
FAMILIES(DECLARE, v4)
#endif
static const sim_opcode_table *const families[SIM_NUM_EXECS][NUM_FAMILIES] = {
#if SIM_HAS_BASE
    [SIM_EXEC_BASELINE] = {FAMILIES(ADDRESS, base)},
#endif
#if SIM_HAS_V3
    [SIM_EXEC_AVX2] = {FAMILIES(ADDRESS, v3)},
#endif
#if SIM_HAS_V4
    [SIM_EXEC_AVX512] = {FAMILIES(ADDRESS, v4)},
#endif
};
static const char *const lacking[SIM_NUM_EXECS] = {
    [SIM_EXEC_AVX2] = "this processor lacks AVX2",
    [SIM_EXEC_AVX512] = "this processor lacks AVX-512",
};

/** All lines of one build, by mnemonic; one mnemonic may have several lines, for different
 *  chips. */
typedef struct sorted_lines {
    sim_exec_build build;
    size_t count;
    const sim_opcode *lines[];
} sorted_lines;

static _Atomic(const sorted_lines *) sorted; // made with the first look-up, kept to the end
static _Atomic(sim_exec_build) wanted;

static int compare(const void *a, const void *b) {
    const sim_opcode *const *x = a, *const *y = b;
    return strcmp((*x)->mnemonic, (*y)->mnemonic);
}

static bool is_built(sim_exec_build build) {
    return families[build][0];
}

static bool runs_here(sim_exec_build build) {
    switch (build) {
    case SIM_EXEC_AVX2:
        return __builtin_cpu_supports("x86-64-v3");
    case SIM_EXEC_AVX512:
        return __builtin_cpu_supports("x86-64-v4");
    default:
        return true;
    }
}

/** Returns the best build that is there and that this processor runs; SIM_EXEC_BEST if there is
 *  none. */
static sim_exec_build best_build(void) {
    sim_exec_build build = SIM_NUM_EXECS - 1;
    while (build > SIM_EXEC_BEST && !(is_built(build) && runs_here(build)))
        build--;
    return build;
}

const char *sim_exec_lacks(sim_exec_build build) {
    if (build == SIM_EXEC_BEST && best_build() == SIM_EXEC_BEST)
        while (!is_built(++build)) // the least demanding one
            ;
    if (!runs_here(build))
        return lacking[build];
    return build == SIM_EXEC_BEST || is_built(build)
               ? nullptr
               : "libquernsim was built without it (make TARGETS=all builds every one)";
}

static sim_exec_build wanted_build(void) {
    const sim_exec_build build = atomic_load(&wanted);
    return build == SIM_EXEC_BEST ? best_build() : build;
}

/** Sorts the tables; null without memory. */
static sorted_lines *sort_tables(sim_exec_build build) {
    const sim_opcode_table *const *const tables = families[build];
    size_t total = 0;
    for (size_t f = 0; f < NUM_FAMILIES; f++)
        total += tables[f]->count;
    sorted_lines *out = malloc(sizeof *out + total * sizeof *out->lines);
    if (!out)
        return nullptr;
    *out = (sorted_lines){.build = build};
    for (size_t f = 0; f < NUM_FAMILIES; f++)
        for (size_t i = 0; i < tables[f]->count; i++)
            out->lines[out->count++] = &tables[f]->opcodes[i];
    qsort(out->lines, out->count, sizeof *out->lines, compare);
    return out;
}

/** Returns the sorted lines; null without memory. If threads come at once, the first one's lines
 *  are kept. */
static const sorted_lines *take_sorted(void) {
    const sorted_lines *before = atomic_load(&sorted);
    if (before)
        return before;
    sorted_lines *made = sort_tables(wanted_build());
    if (made && atomic_compare_exchange_strong(&sorted, &before, made))
        return made;
    free(made);
    return before;
}

bool sim_opcodes_are_ready(void) {
    return take_sorted();
}

bool sim_exec_choose(sim_exec_build build) {
    const sorted_lines *made = atomic_load(&sorted);
    sim_exec_build before = atomic_exchange(&wanted, build);
    if (made && made->build != wanted_build()) {
        atomic_store(&wanted, before);
        return false;
    }
    return true;
}

const sim_opcode *sim_opcode_find(const char *mnemonic, size_t length, sim_arch arch) {
    const sorted_lines *all = take_sorted();
    size_t low = 0, high = all ? all->count : 0; // the first line that is not below the mnemonic
    while (low < high) {
        const size_t mid = (low + high) / 2;
        const char *name = all->lines[mid]->mnemonic;
        const int order = strncmp(name, mnemonic, length);
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    for (; all && low < all->count && !strncmp(all->lines[low]->mnemonic, mnemonic, length);
         low++) {
        const sim_opcode *line = all->lines[low];
        if (!line->mnemonic[length] && (line->archs >> arch & 1))
            return line;
    }
    return nullptr;
}

const sim_opcode *sim_opcode_of(const sim_opcode *opcode, sim_exec_build build) {
    for (sim_exec_build from = SIM_EXEC_BASELINE; is_built(build) && from < SIM_NUM_EXECS; from++) {
        for (size_t f = 0; f < NUM_FAMILIES && is_built(from); f++) {
            const uintptr_t offset = (uintptr_t)opcode - (uintptr_t)families[from][f]->opcodes;
            if (offset < families[from][f]->count * sizeof *opcode)
                return families[build][f]->opcodes + offset / sizeof *opcode;
        }
    }
    return opcode;
}

const char *sim_mnemonic(const sim_inst *inst) {
    return inst ? inst->opcode->mnemonic : "?";
}
