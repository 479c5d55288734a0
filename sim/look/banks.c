// SPDX-License-Identifier: Apache-2.0
// LDS bank conflicts: which lanes of an access the LDS serves together, and how many cycles the
// access takes.
//
// An access is served in groups of lanes, a cycle each. Within a group a bank gives one word of
// four bytes a cycle to every lane that wants that word; each further word of the same bank takes
// one more cycle. Sources. CDNA3 and before, 16-byte loads and stores: measured, ROCm blog on LDS
// bank conflicts in CK-Tile. CDNA4, loads of each width and 8-byte stores: measured, HipKittens'
// phase experiments. All else is inferred: the LDS delivers 128 bytes a cycle (CDNA3 white paper;
// RDNA3 and RDNA4: vendor's data), and takes as many on CDNA4, so that lanes in order make groups
// of 128 bytes. It is also inferred that lanes' atomics on one word take turns.
#include "count.h"

#include <string.h>

enum { MAX_GROUPS = 8 };

/** Lanes that are served together. */
typedef struct phase_rule {
    uint8_t num_groups;
    uint64_t groups[MAX_GROUPS];
} phase_rule;

#define RUN(first, count) (((UINT64_C(1) << (count)) - 1) << (first))
#define UPPER(mask) ((mask) << 32)

// clang-format off
static const phase_rule all_64 = {1, {UINT64_MAX}};
static const phase_rule runs_of_32 = {2, {RUN(0, 32), RUN(32, 32)}};
static const phase_rule runs_of_16 = {4, {RUN(0, 16), RUN(16, 16), RUN(32, 16), RUN(48, 16)}};
static const phase_rule runs_of_8 = {8, {RUN(0, 8), RUN(8, 8), RUN(16, 8), RUN(24, 8),
                                             RUN(32, 8), RUN(40, 8), RUN(48, 8), RUN(56, 8)}};
#define CDNA3_0 (RUN(0, 4) | RUN(20, 4))
#define CDNA3_1 (RUN(4, 4) | RUN(16, 4))
#define CDNA3_2 (RUN(8, 4) | RUN(28, 4))
#define CDNA3_3 (RUN(12, 4) | RUN(24, 4))
static const phase_rule cdna3_read_b128 = {8, {CDNA3_0, CDNA3_1, CDNA3_2, CDNA3_3,
    UPPER(CDNA3_0), UPPER(CDNA3_1), UPPER(CDNA3_2), UPPER(CDNA3_3)}};
#define CDNA4_0 (RUN(0, 4) | RUN(12, 4) | RUN(20, 8))
#define CDNA4_1 (RUN(4, 8) | RUN(16, 4) | RUN(28, 4))
static const phase_rule cdna4_read_b128 = {4, {CDNA4_0, CDNA4_1, UPPER(CDNA4_0), UPPER(CDNA4_1)}};

// By the access's dwords, rounded up to a power of two: 1, 2, 4.
static const phase_rule *const cdna3_reads[] = {&runs_of_32, &runs_of_16, &cdna3_read_b128};
static const phase_rule *const cdna4_reads[] = {&all_64, &runs_of_32, &cdna4_read_b128};
// 128 bytes a cycle: CDNA's stores, all of RDNA
static const phase_rule *const in_order[] = {&runs_of_32, &runs_of_16, &runs_of_8};
// clang-format on

static const phase_rule *rule_of(const sim_chip *chip, uint32_t bytes, bool is_load) {
    const unsigned width = bytes <= 4 ? 0 : bytes <= 8 ? 1 : 2;
    const phase_rule *const *rules = chip->gfx_major > 9 || !is_load ? in_order
                                     : chip->arch == SIM_GFX950      ? cdna4_reads
                                                                     : cdna3_reads;
    return rules[width];
}

enum { MAX_BANKS = 64 };

/** The different words that the lanes of a group want of each bank. The words of one lane lie in
 *  different banks, as there are at most five. */
typedef struct wanted {
    uint8_t count[MAX_BANKS];
    uint32_t words[MAX_BANKS][SIM_LANES];
} wanted;

/** Adds a word to those of its bank. Returns how many it has now. */
static uint32_t want(wanted *w, uint32_t bank, uint32_t word, bool is_alone) {
    uint8_t i = 0;
    while (i < w->count[bank] && (is_alone || w->words[bank][i] != word))
        i++;
    if (i == w->count[bank])
        w->words[bank][w->count[bank]++] = word;
    return w->count[bank];
}

/** Returns the most words that the lanes of a group want of one bank. A word that several lanes
 *  want counts once, unless each lane's access stands alone. */
static uint32_t group_cycles(const sim_touch *touch, uint64_t lanes, uint32_t num_banks,
                             bool are_alone) {
    wanted w;
    memset(w.count, 0, sizeof w.count);
    uint32_t cycles = 0;
    for (uint64_t left = lanes; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const uint32_t first = (uint32_t)touch->address[lane] / 4;
        const uint32_t last = (uint32_t)(touch->address[lane] + touch->bytes[lane] - 1) / 4;
        for (uint32_t word = first; word <= last; word++) {
            const uint32_t n = want(&w, word % num_banks, word, are_alone);
            cycles = n > cycles ? n : cycles;
        }
    }
    return cycles;
}

sim_lds_time sim_time_lds(const sim_chip *chip, const sim_touch *touch, uint8_t access) {
    const bool is_atomic = access == SIM_ACCESS_ATOMIC;
    sim_lds_time out = {};
    uint32_t bytes = 0, num_banks = chip->lds_banks;
    for (uint64_t left = touch->mask; left; left &= left - 1) {
        const uint8_t own = touch->bytes[__builtin_ctzll(left)];
        bytes = own > bytes ? own : bytes;
    }
    const phase_rule *rule = rule_of(chip, bytes, access == SIM_ACCESS_LOAD);
    for (unsigned i = 0; i < rule->num_groups; i++) {
        const uint64_t lanes = touch->mask & rule->groups[i];
        if (lanes) {
            const uint32_t cycles = group_cycles(touch, lanes, num_banks, is_atomic);
            out.active += cycles;
            out.conflict += cycles - 1;
        }
    }
    return out;
}
