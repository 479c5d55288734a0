// SPDX-License-Identifier: Apache-2.0
// Which instructions are executed: every opcode of every encoding that LLVM knows for the chips is
// tried with random operands. Those that bind to no function are exactly the list in missing.def.
#include "words_testing.h"

enum { CHIPS = 5, ROOM = 1024, TRIES = 56 };
static const char *const chips[CHIPS] = {"gfx90a", "gfx942", "gfx950", "gfx1151", "gfx1201"};

/** A mnemonic that does not bind, and the chips on which it does not: bit i is chips[i]. */
typedef struct missing {
    char name[48];
    unsigned chips;
} missing;

static const missing expected[] = {
#define MISSING(name, why, on_gfx90a, on_gfx942, on_gfx950, on_gfx1151, on_gfx1201)                \
    {#name, on_gfx90a | on_gfx942 << 1 | on_gfx950 << 2 | on_gfx1151 << 3 | on_gfx1201 << 4},
#include "missing.def"
#undef MISSING
};
enum { NUM_EXPECTED = sizeof expected / sizeof *expected };

static missing found[ROOM];
static unsigned num_found;

static void add_missing(const char *name, size_t length, unsigned chip) {
    unsigned i = 0;
    while (i < num_found && (strncmp(found[i].name, name, length) || found[i].name[length]))
        i++;
    assert_true(i < ROOM && length < sizeof found->name);
    memcpy(found[i].name, name, length);
    found[i].chips |= 1u << chip;
    num_found += i == num_found;
}

// ---- decoding

/** Finds the mnemonic, without its encoding's suffix, in the decoder's complaint that nothing
 *  implements it. */
static size_t unimplemented(const char *error, const char **name) {
    static const char text[] = "instruction not implemented: ";
    static const char *const suffixes[] = {"_e64_dpp", "_e32", "_e64", "_dpp", "_sdwa"};
    if (strncmp(error, text, sizeof text - 1) != 0)
        return 0;
    *name = error + sizeof text - 1;
    const size_t length = strcspn(*name, " \t");
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const size_t n = strlen(suffixes[i]);
        if (length > n && !memcmp(*name + length - n, suffixes[i], n))
            return length - n;
    }
    return length;
}

/** Returns whether some operands decode to a bound instruction. */
static bool try_opcode(const encoding *e, unsigned opcode, unsigned chip) {
    bool bound = false;
    for (unsigned attempt = 0; attempt < TRIES; attempt++) {
        uint32_t word[4];
        char error[SIM_ERROR_BYTES] = "";
        const char *name;
        sim_inst inst;
        make_words(e, opcode, attempt, word);
        if (sim_decode(sim_chip_by_name(chips[chip]), (const uint8_t *)word, sizeof word, 0x1000,
                       &inst, error)) {
            bound = true;
            sim_inst_deinit(&inst);
        } else {
            const size_t length = unimplemented(error, &name);
            if (length)
                add_missing(name, length, chip);
        }
    }
    return bound;
}

// ---- the comparison

static unsigned chips_of(const missing *list, unsigned count, const char *name) {
    for (unsigned i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return list[i].chips;
    return 0;
}

static void print_line(const missing *m) {
    print_error("MISSING(%s, WHY, %u, %u, %u, %u, %u)\n", m->name, m->chips & 1, m->chips >> 1 & 1,
                m->chips >> 2 & 1, m->chips >> 3 & 1, m->chips >> 4 & 1);
}

static void test_every_opcode(void **) {
    static const unsigned least[CHIPS] = {1250, 1280, 1380, 1400,
                                          1420}; // opcodes of an encoding that bind
    static const unsigned families[CHIPS] = {GFX9, GFX9, GFX9, GFX11, GFX12};
    unsigned wrong = 0;
    for (unsigned chip = 0; chip < CHIPS; chip++) {
        unsigned bound = 0;
        for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) {
            if (!(encodings[i].family & families[chip]))
                continue;
            for (unsigned opcode = 0; opcode < encodings[i].count; opcode++)
                bound += try_opcode(&encodings[i], opcode, chip);
        }
        print_message("%s: %u opcodes of an encoding bind\n", chips[chip], bound);
        assert_true(bound >= least[chip]);
    }
    for (unsigned i = 0; i < num_found; i++) {
        if (chips_of(expected, NUM_EXPECTED, found[i].name) != found[i].chips) {
            print_line(&found[i]);
            wrong++;
        }
    }
    for (unsigned i = 0; i < NUM_EXPECTED; i++) {
        if (!chips_of(found, num_found, expected[i].name)) {
            print_error("%s binds: take it off the list\n", expected[i].name);
            wrong++;
        }
    }
    if (wrong) {
        fail_msg("%u lines of missing.def are wrong or not there; what they should be is above",
                 wrong);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_opcode)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
