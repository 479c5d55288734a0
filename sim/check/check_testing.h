// SPDX-License-Identifier: Apache-2.0
// For the tests of the checker: pairs of programs in the mnemonics of each chip, and the outcome of
// running them.
#ifndef SIM_CHECK_TESTING_H
#define SIM_CHECK_TESTING_H

#include "../exec/exec_testing.h"
#include "../memory.h"
#include "../object/object.h"
#include "../options.h"
#include "../report/fault.h"
#include "../wave.h"

enum { LDS_BYTES = 4096, BUFFER_BYTES = 16384, RESULT_AT = 8192 };

enum { CDNA = 1, GFX11 = 2, GFX12 = 4, EVERY = 7 }; // pair.chips

typedef struct pair {
    const char *name;
    unsigned chips, waves;
    const char *bad, *good;
    const char *report; // part of it
} pair;

// ---- chips. Programs and reports are written in CDNA's words; RDNA runs them with 64 lanes a
// wave.

typedef struct chip {
    const char *name, *assembler;
    unsigned family;
} chip;

static const chip chips[] = {{"gfx90a", "gfx90a", CDNA},
                             {"gfx942", "gfx942", CDNA},
                             {"gfx950", "gfx950", CDNA},
                             {"gfx1151", "gfx1151:+wavefrontsize64", GFX11},
                             {"gfx1201", "gfx1201:+wavefrontsize64", GFX12}};
enum { NUM_CHIPS = sizeof chips / sizeof *chips };

typedef struct word {
    const char *cdna, *other;
    unsigned chips;
} word;

// clang-format off
static const word words[] = { // the first that fits is taken
    // as long as the others' prologue
    {"s_waitcnt lgkmcnt(0)\ns_mov_b32 s8", "s_wait_kmcnt 0x0\ns_mov_b32 s8", GFX12},
    {"global_load_dwordx2", "global_load_b64", GFX11 | GFX12}, {"global_load_dword", "global_load_b32", GFX11 | GFX12},
    {"global_store_dword", "global_store_b32", GFX11 | GFX12}, {"s_load_dwordx2", "s_load_b64", GFX11 | GFX12},
    {"s_load_dword", "s_load_b32", GFX11 | GFX12}, {"ds_read_", "ds_load_", GFX11 | GFX12},
    {"ds_write_", "ds_store_", GFX11 | GFX12}, {"v_add_u32_e32", "v_add_nc_u32_e32", GFX11 | GFX12},
    {"s_waitcnt vmcnt(0)", "s_wait_loadcnt 0x0", GFX12}, {"s_waitcnt vmcnt(1)", "s_wait_loadcnt 0x1", GFX12},
    {"s_waitcnt lgkmcnt(0)", "s_wait_dscnt 0x0\n s_wait_kmcnt 0x0", GFX12},
    {"s_waitcnt lgkmcnt(1)", "s_wait_dscnt 0x1\n s_wait_kmcnt 0x1", GFX12},
    {"s_barrier\n", "s_barrier_signal -1\n s_barrier_wait -1\n", GFX12},
    {"wait for vmcnt", "wait for loadcnt", GFX12}, // in reports
};
// clang-format on

/** Returns a program or a report in the chip's words, in memory that the caller frees. */
static inline char *in_words_of(const chip *c, const char *text) {
    char *out = nullptr;
    size_t bytes;
    FILE *file = open_memstream(&out, &bytes);
    assert_non_null(file);
    while (*text) {
        const word *w = words, *end = words + sizeof words / sizeof *words;
        while (w < end && !((w->chips & c->family) && !strncmp(text, w->cdna, strlen(w->cdna))))
            w++;
        fprintf(file, "%.*s", w < end ? (int)strlen(w->other) : 1, w < end ? w->other : text);
        text += w < end ? strlen(w->cdna) : 1;
    }
    fclose(file);
    return out;
}

// ---- one program

// The beginning of every program. It leaves the buffer's pointer in s[4:5] and its descriptor in
// s[8:11], the work-item in v0, four times the work-item in v1, a defined value in v2, and the
// wave's first work-item in s6.
static const char prologue[] = "s_load_dwordx2 s[4:5], s[0:1], 0x0\n"
                               "v_lshlrev_b32_e32 v1, 2, v0\n"
                               "v_add_u32_e32 v2, 7, v0\n"
                               "v_readfirstlane_b32 s6, v0\n"
                               "s_waitcnt lgkmcnt(0)\n"
                               "s_mov_b32 s8, s4\n s_and_b32 s9, s5, 0xffff\n"
                               "s_mov_b32 m0, 0\n" // an instruction before it is read
                               "s_movk_i32 s10, 0x4000\n s_mov_b32 s11, 0x27000\n";

typedef struct program {
    const chip *chip;
    uint8_t *code;
    size_t size;
} program;

static inline program make_program(const chip *c, const char *body) {
    char source[4096];
    program p = {.chip = c};
    snprintf(source, sizeof source, "%s%s\ns_endpgm\n", prologue, body);
    char *text = in_words_of(c, source);
    p.code = assemble(c->assembler, text, &p.size);
    free(text);
    return p;
}

typedef struct outcome {
    bool ok;
    uint32_t result; // the dword of the buffer at RESULT_AT
    char text[8192];
} outcome;

static inline void keep_report(outcome *out, sim_dispatch *d) {
    char *text = sim_faults_text(d);
    snprintf(out->text, sizeof out->text, "%s", text);
    free(text);
    sim_faults_deinit(&d->faults);
}

/** Makes a buffer whose dword i is 1000 + i. */
static const sim_region *make_buffer(sim_memory *memory) {
    const sim_region *buffer = sim_memory_alloc(memory, BUFFER_BYTES, SIM_REGION_DEVICE, 0);
    assert_non_null(buffer);
    for (uint32_t i = 0; i < BUFFER_BYTES / 4; i++) {
        uint32_t value = 1000 + i;
        memcpy(buffer->host + 4 * i, &value, 4);
    }
    return buffer;
}

/** Runs a program for one workgroup under `check`, each wave `turn` instructions at a time; its
 *  only argument is a buffer of its own. */
static inline outcome run_in_turns(const program *p, unsigned waves, uint32_t check,
                                   uint32_t turn) {
    sim_memory *memory = sim_memory_create();
    const sim_region *kernarg = sim_memory_alloc(memory, 64, SIM_REGION_KERNARG, 0);
    const sim_region *buffer = make_buffer(memory);
    memcpy(kernarg->host, &buffer->base, 8);
    enum { KERNARG = 8, TWO_USERS = 2 << 1 };
    sim_kernel kernel = {.name = (char *)(uintptr_t)"program",
                         .entry = 0x10000,
                         .rsrc1 = 63,
                         .rsrc2 = TWO_USERS,
                         .rsrc3 = 15,
                         .properties = KERNARG};
    sim_text text = {.chip = sim_chip_by_name(p->chip->name),
                     .bytes = p->code,
                     .start = kernel.entry,
                     .size = p->size,
                     .slots = calloc(p->size / 4 + 1, sizeof(void *))};
    sim_dispatch d = {.chip = text.chip,
                      .memory = memory,
                      .kernel = &kernel,
                      .text = &text,
                      .grid = {1, 1, 1},
                      .block = {64 * waves, 1, 1},
                      .lds_bytes = LDS_BYTES,
                      .kernarg = kernarg->base,
                      .check = check,
                      .turn = turn,
                      .limit = 100000};
    outcome out = {.ok = sim_dispatch_run(&d)};
    memcpy(&out.result, buffer->host + RESULT_AT, 4);
    keep_report(&out, &d);
    sim_text_deinit(&text);
    sim_memory_destroy(memory);
    return out;
}

/** Runs a program in which each wave runs to its barrier, so that what other waves find is
 *  fixed. */
static inline outcome run_program(const program *p, unsigned waves, uint32_t check) {
    return run_in_turns(p, waves, check, UINT32_MAX);
}

/** Expects that a right program has no faults under any check, in whatever order its waves run. */
static inline void expect_clean(const program *p, const char *name, unsigned waves) {
    static const uint32_t turns[] = {1, 2, 3, 16, UINT32_MAX};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        outcome clean = run_in_turns(p, waves, SIM_CHECK_ALL, turns[i]);
        if (!clean.ok)
            fail_msg("%s, %s, turn=%u: not clean: %s", p->chip->name, name, turns[i], clean.text);
    }
}

// ---- pairs

enum { SLOT = 2048 }; // bytes of a program's code

/** Assembles the programs of all pairs, one behind the other, so that the assembler starts once for
 *  a chip. Programs that are not for the chip are left empty. */
static inline uint8_t *make_programs(const chip *c, const pair *pairs, size_t count) {
    char *source = nullptr;
    size_t bytes, size;
    FILE *file = open_memstream(&source, &bytes);
    assert_non_null(file);
    for (size_t i = 0; i < 2 * count; i++) {
        const pair *p = &pairs[i / 2];
        const bool is_for_it = p->chips & c->family;
        fprintf(file, ".org %zu\n%s%s\ns_endpgm\n", i * SLOT, is_for_it ? prologue : "",
                !is_for_it ? ""
                : i % 2    ? p->good
                           : p->bad);
    }
    fprintf(file, ".org %zu\n", 2 * count * SLOT);
    fclose(file);
    char *text = in_words_of(c, source);
    uint8_t *code = assemble(c->assembler, text, &size);
    assert_int_equal(size, 2 * count * SLOT);
    free(text);
    free(source);
    return code;
}

/** Checks a pair, whose two programs are at `code`. */
static inline void check_pair(const chip *c, const pair *p, uint8_t *code, uint32_t own_check) {
    program bad = {c, code, SLOT}, good = {c, code + SLOT, SLOT};
    char *report = in_words_of(c, p->report);
    outcome found = run_program(&bad, p->waves, own_check);
    if (found.ok || !strstr(found.text, report))
        fail_msg("%s, %s: '%s' does not contain '%s'", c->name, p->name, found.text, report);
    outcome others = run_program(&bad, p->waves, SIM_CHECK_ALL & ~own_check);
    if (!others.ok)
        fail_msg("%s, %s: not clean: %s", c->name, p->name, others.text);
    expect_clean(&good, p->name, p->waves);
    free(report);
}

/** Checks a pair whose fault any check reports. */
static inline void check_always(const chip *c, const pair *p, uint8_t *code) {
    program bad = {c, code, SLOT}, good = {c, code + SLOT, SLOT};
    char *report = in_words_of(c, p->report);
    static const uint32_t checks[] = {SIM_CHECK_BOUNDS, SIM_CHECK_RACE, SIM_CHECK_ALL};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        outcome found = run_program(&bad, p->waves, checks[i]);
        if (found.ok || !strstr(found.text, report))
            fail_msg("%s, %s: '%s' does not contain '%s'", c->name, p->name, found.text, report);
    }
    expect_clean(&good, p->name, p->waves);
    free(report);
}

/** Checks all pairs. own_check is the check that finds their faults; 0: any check does. */
static inline void check_pairs(const pair *pairs, size_t count, uint32_t own_check) {
    for (const chip *c = chips; c < chips + NUM_CHIPS; c++) {
        uint8_t *code = make_programs(c, pairs, count);
        for (size_t i = 0; i < count; i++) {
            if (!(pairs[i].chips & c->family))
                continue;
            if (own_check)
                check_pair(c, &pairs[i], code + 2 * i * SLOT, own_check);
            else
                check_always(c, &pairs[i], code + 2 * i * SLOT);
        }
        free(code);
    }
}

#define CHECK_PAIRS(pairs, check) check_pairs(pairs, sizeof pairs / sizeof *pairs, check)

#endif
