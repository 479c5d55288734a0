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
FAMILIES(DECLARE, base)
FAMILIES(DECLARE, v4)
static const sim_opcode_table *const families_base[] = {FAMILIES(ADDRESS, base)};
static const sim_opcode_table *const families_v4[] = {FAMILIES(ADDRESS, v4)};
static_assert(sizeof families_base == sizeof families_v4);
enum { NUM_FAMILIES = sizeof families_base / sizeof *families_base };

/** All lines of one build, by mnemonic; one mnemonic may have several lines, for different
 *  chips. */
typedef struct sorted_lines {
    bool is_v4;
    size_t count;
    const sim_opcode *lines[];
} sorted_lines;

static _Atomic(const sorted_lines *) sorted; // made with the first look-up, kept to the end
static _Atomic(sim_exec_build) wanted;

static int compare(const void *a, const void *b) {
    const sim_opcode *const *x = a, *const *y = b;
    return strcmp((*x)->mnemonic, (*y)->mnemonic);
}

bool sim_exec_has_avx512(void) {
    return __builtin_cpu_supports("x86-64-v4");
}

static bool is_v4_wanted(void) {
    return atomic_load(&wanted) != SIM_EXEC_BASELINE && sim_exec_has_avx512();
}

/** Null without memory. */
static sorted_lines *sort_tables(bool is_v4) {
    const sim_opcode_table *const *families = is_v4 ? families_v4 : families_base;
    size_t total = 0;
    for (size_t f = 0; f < NUM_FAMILIES; f++)
        total += families[f]->count;
    sorted_lines *out = malloc(sizeof *out + total * sizeof *out->lines);
    if (!out)
        return nullptr;
    *out = (sorted_lines){.is_v4 = is_v4};
    for (size_t f = 0; f < NUM_FAMILIES; f++)
        for (size_t i = 0; i < families[f]->count; i++)
            out->lines[out->count++] = &families[f]->opcodes[i];
    qsort(out->lines, out->count, sizeof *out->lines, compare);
    return out;
}

/** Null without memory. Of threads that come at once the first one's is kept. */
static const sorted_lines *take_sorted(void) {
    const sorted_lines *before = atomic_load(&sorted);
    if (before)
        return before;
    sorted_lines *made = sort_tables(is_v4_wanted());
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
    if (made && made->is_v4 != is_v4_wanted()) {
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

const sim_opcode *sim_opcode_portable(const sim_opcode *opcode) {
    for (size_t f = 0; f < NUM_FAMILIES; f++) {
        const uintptr_t offset = (uintptr_t)opcode - (uintptr_t)families_v4[f]->opcodes;
        if (offset < families_v4[f]->count * sizeof *opcode)
            return families_base[f]->opcodes + offset / sizeof *opcode;
    }
    return opcode; // from the portable tables already
}

const char *sim_mnemonic(const sim_inst *inst) {
    return inst ? inst->opcode->mnemonic : "?";
}
