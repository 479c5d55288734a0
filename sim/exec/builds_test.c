// SPDX-License-Identifier: Apache-2.0
// Tests that every host gives equal bits: each instruction, made of random words, leaves the same
// registers, LDS and memory in all builds of exec/ that run here, whatever MODE says, including the
// bits of NaNs.
#include "../isa/encodings.h"
#include "../options.h"
#include "exec_testing.h"

enum {
    WORDS = 3,     // of an opcode that are executed
    ATTEMPTS = 48, // to find them
    RUNS = 6,      // of each, over other registers
    STATES = 12,   // registers to choose from
    BYTES = 8192,
    SCRATCH = 64,
};

static const char *const chips[] = {"gfx90a", "gfx942", "gfx950", "gfx1151", "gfx1201"};
static const unsigned families[] = {GFX9, GFX9, GFX9, GFX11, GFX12};

static test_wave *t, *states[STATES];
static uint8_t *memory, first_memory[BYTES], old_memory[BYTES], old_lds[TEST_LDS_BYTES];
static uint8_t scratch[SIM_LANES * SCRATCH];
static uint64_t guest;

// ---- a wave's registers

/** Returns a NaN of some type, or what next_biased gives. */
static uint64_t often_nan(void) {
    const uint64_t r = next_random(), sign = r & 0x8000000080008000;
    switch (r >> 60) {
    case 0:
        return r | 0x7ff8000000000000;
    case 1:
        return (r & 0x807fffff807fffff) | 0x7f8000007f800000;
    case 2:
        return (r & 0x83ff83ff83ff83ff) | 0x7c007c007c007c00;
    case 3:
        return sign | 0x7ff0000000000001;
    default:
        return next_biased();
    }
}

static void make_states(const char *chip) {
    for (unsigned i = 0; i < STATES; i++) {
        states[i] = make_wave(chip);
        randomise(states[i], UINT64_MAX);
        for (unsigned r = 0; i % 2 && r < 512; r += 2) {
            for (unsigned lane = 0; lane < SIM_LANES; lane++) {
                const uint64_t bits = often_nan();
                states[i]->wave.v[r][lane] = (uint32_t)bits;
                states[i]->wave.v[r + 1][lane] = (uint32_t)(bits >> 32);
            }
        }
    }
}

/** Puts into an operand what points to memory: an address in every lane of a register or a pair, a
 *  scalar base, or a buffer's descriptor. */
static void point_to_memory(sim_wave *w, const sim_operand *op, bool has_base) {
    if (op->kind == SIM_OP_VGPR && op->reg < 255) {
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            const uint64_t at = (has_base ? 0 : guest) + 32 * lane + (next_random() & 28);
            w->v[op->reg][lane] = (uint32_t)at;
            if (op->count == 2)
                w->v[op->reg + 1][lane] = (uint32_t)(at >> 32);
        }
    } else if (op->kind == SIM_OP_SGPR && op->count >= 2 && op->reg < 100) {
        w->s[op->reg] = (uint32_t)guest;
        w->s[op->reg + 1] = (uint32_t)(guest >> 32);
    }
    if (op->kind == SIM_OP_SGPR && op->count == 4 && op->reg < 100) {
        w->s[op->reg + 2] = BYTES;
        w->s[op->reg + 3] = 0x00027000;
    }
}

static void prepare(const sim_inst *inst, unsigned run) {
    const uint64_t exec = random_exec(run ? 6 : 0);
    const sim_wave *from = &states[next_random() % STATES]->wave;
    memcpy(t->wave.v, from->v, sizeof from->v);
    memcpy(t->wave.s, from->s, sizeof from->s);
    t->wave.wave32 = t->dispatch.chip->wave_size == 32;
    t->wave.exec = t->wave.wave32 ? (uint32_t)exec : exec;
    t->wave.m0 = (uint32_t)next_random() & 31;
    t->wave.scc = next_random() & 1;
    t->wave.mode = run < 2 ? states[0]->wave.mode
                           : (uint32_t)next_random() & (SIM_MODE_FLOAT | SIM_MODE_FP16_OVFL |
                                                        SIM_MODE_IEEE | SIM_MODE_DX10_CLAMP);
    t->wave.fast_matrix = false;
    t->wave.state = SIM_RUNNING;
    t->wave.pc = inst->pc + inst->bytes;
    const uint8_t klass = inst->traits.klass;
    bool is_memory = klass == SIM_VMEM || klass == SIM_LDS_OP || klass == SIM_SMEM,
         has_base = false;
    for (unsigned i = 0; i < inst->num_src; i++)
        has_base |= inst->src[i].kind == SIM_OP_SGPR && inst->src[i].count >= 2;
    has_base |= klass == SIM_LDS_OP;
    for (unsigned i = 0; is_memory && i < inst->num_src; i++) {
        const bool is_address = i == 0 || inst->src[i].kind == SIM_OP_SGPR;
        if (is_address)
            point_to_memory(&t->wave, &inst->src[i], has_base);
    }
}

// ---- the builds

static void fill(uint8_t *out, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t bits = often_nan();
        memcpy(out + i, &bits, 8);
    }
}

static void fail_at(const sim_inst *inst, const char *chip, const char *what, unsigned index,
                    unsigned lane, uint32_t base, uint32_t other) {
    char sources[256] = "";
    for (unsigned i = 0; i < inst->num_src; i++) {
        const sim_operand *op = &inst->src[i];
        const size_t used = strlen(sources);
        const uint32_t value = op->kind == SIM_OP_VGPR   ? t->before.v[op->reg][lane]
                               : op->kind == SIM_OP_SGPR ? t->before.s[op->reg]
                                                         : op->value;
        snprintf(sources + used, sizeof sources - used, " %08x", value);
    }
    print_error("%s %s (%08x %08x): %s %u lane %u: %08x, baseline %08x; MODE %x, sources%s\n", chip,
                inst->opcode->mnemonic, inst->word[0], inst->word[1], what, index, lane, other,
                base, t->before.mode, sources);
}

/** Returns whether a build left other registers, LDS or memory than the baseline, and reports
 *  where. */
static bool differ(const sim_inst *inst, const char *chip, const sim_wave *base) {
    for (unsigned r = 0; r < 512; r++) {
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            if (base->v[r][lane] != t->wave.v[r][lane]) {
                fail_at(inst, chip, "v", r, lane, base->v[r][lane], t->wave.v[r][lane]);
                return true;
            }
        }
    }
    for (unsigned i = 0; i < 128; i++) {
        if (base->s[i] != t->wave.s[i]) {
            fail_at(inst, chip, "s", i, 0, base->s[i], t->wave.s[i]);
            return true;
        }
    }
    if (base->scc != t->wave.scc || base->mode != t->wave.mode || base->pc != t->wave.pc) {
        fail_at(inst, chip, "scc, mode or pc", 0, 0, base->scc, t->wave.scc);
        return true;
    }
    for (unsigned i = 0; i < TEST_LDS_BYTES; i++) {
        if (t->lds[i] != t->lds_before[i]) {
            fail_at(inst, chip, "LDS", i, 0, t->lds_before[i], t->lds[i]);
            return true;
        }
    }
    for (unsigned i = 0; i < BYTES; i++) {
        if (memory[i] != first_memory[i]) {
            fail_at(inst, chip, "memory", i, 0, first_memory[i], memory[i]);
            return true;
        }
    }
    return false;
}

/** Returns the instruction as a build has it. */
static sim_inst as_built(const sim_inst *inst, sim_exec_build build, sim_inst *second) {
    sim_inst out = *inst;
    const bool is_dual = inst->second;
    out.opcode = sim_opcode_of(inst->opcode, build);
    out.exec = is_dual ? inst->exec : out.opcode->exec;
    if (is_dual) {
        *second = *inst->second;
        second->opcode = sim_opcode_of(second->opcode, build);
        second->exec = second->opcode->exec;
        out.second = second;
    }
    return out;
}

static void run_in(const sim_inst *inst, sim_exec_build build) {
    sim_inst second, built = as_built(inst, build, &second);
    memcpy(&t->wave, &t->before, sizeof t->wave);
    memcpy(memory, old_memory, BYTES);
    memcpy(t->lds, old_lds, sizeof old_lds);
    built.exec(&t->wave, &built);
}

/** Runs an instruction in every build. Returns whether one of them differs from the baseline. */
static bool run_all(const sim_inst *inst, const char *chip, unsigned run) {
    static sim_wave base;
    prepare(inst, run);
    memcpy(&t->before, &t->wave, sizeof t->wave);
    if (inst->traits.klass == SIM_VMEM || inst->opcode->klass == SIM_LDS_OP) {
        fill(old_memory, BYTES);
        fill(old_lds, sizeof old_lds);
    }
    run_in(inst, SIM_EXEC_BASELINE);
    memcpy(&base, &t->wave, sizeof base);
    memcpy(first_memory, memory, BYTES);
    memcpy(t->lds_before, t->lds, sizeof t->lds);
    for (sim_exec_build build = SIM_EXEC_BASELINE + 1; build < SIM_NUM_EXECS; build++) {
        if (sim_exec_lacks(build))
            continue;
        run_in(inst, build);
        if (differ(inst, chip, &base))
            return true;
    }
    return false;
}

/** Returns whether an instruction is tried. Flow is not computation: waits, barriers, messages, the
 *  clock. */
static bool is_tried(const sim_inst *inst) {
    return inst->traits.klass != SIM_FLOW && inst->opcode->klass != SIM_SMEM;
}

static void make_words(const encoding *e, unsigned opcode, unsigned attempt, uint32_t word[4]) {
    for (unsigned i = 0; i < 4; i++)
        word[i] = (uint32_t)next_random();
    uint32_t operands = word[0] & e->operands;
    operands &= attempt & 1 ? 0xfffe00fe : attempt & 2 ? 0xffff7fff : UINT32_MAX;
    if (attempt % 8 >= 6) { // as an assembler writes it without modifiers
        operands &= 0xfe00fe;
        word[1] = 0x1c020100u + 0x400 * (word[1] & 31) + 2 * (word[1] >> 8 & 31);
    } else if (attempt % 8 >= 3) { // sources of VOP3: vectors
        word[1] = (word[1] & 0x780e07fe) | 0x04020100;
    }
    word[0] = e->base | opcode << e->shift | operands;
}

/** Returns how many words of an opcode were executed. *wrong counts those that disagree. */
static unsigned try_opcode(const encoding *e, unsigned opcode, unsigned chip, unsigned *wrong) {
    unsigned words = 0;
    for (unsigned attempt = 0; attempt < ATTEMPTS && words < WORDS; attempt++) {
        uint32_t word[4];
        char error[SIM_ERROR_BYTES] = "";
        sim_inst inst;
        make_words(e, opcode, attempt, word);
        if (!sim_decode(sim_chip_by_name(chips[chip]), (const uint8_t *)word, sizeof word, 0x1000,
                        &inst, error)) {
            continue;
        }
        if (is_tried(&inst)) {
            words++;
            for (unsigned run = 0; run < RUNS; run++) {
                if (run_all(&inst, chips[chip], run)) {
                    ++*wrong;
                    break;
                }
            }
        }
        sim_inst_deinit(&inst);
    }
    return words;
}

static void start(const char *chip) {
    t = make_wave(chip);
    t->dispatch.memory = sim_memory_create();
    guest = sim_memory_alloc(t->dispatch.memory, BYTES, SIM_REGION_DEVICE, 0)->base;
    memory = sim_memory_host(t->dispatch.memory, guest, BYTES);
    t->wave.scratch = scratch;
    t->wave.scratch_bytes = SCRATCH;
    make_states(chip);
}

static void stop(void) {
    sim_faults_deinit(&t->dispatch.faults);
    sim_memory_destroy(t->dispatch.memory);
    for (unsigned i = 0; i < STATES; i++)
        free(states[i]);
    free(t);
}

static void test_chip(unsigned chip, unsigned least) {
    unsigned tried = 0, wrong = 0;
    start(chips[chip]);
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) {
        const encoding *e = &encodings[i];
        for (unsigned opcode = 0; e->family & families[chip] && opcode < e->count; opcode++)
            tried += try_opcode(e, opcode, chip, &wrong) > 0;
    }
    stop();
    print_message("%s: %u opcodes of an encoding\n", chips[chip], tried);
    if (wrong)
        fail_msg("%s: %u words differ between the builds", chips[chip], wrong);
    assert_true(tried >= least);
}

static void test_gfx90a(void **) {
    test_chip(0, 950);
}
static void test_gfx942(void **) {
    test_chip(1, 1000);
}
static void test_gfx950(void **) {
    test_chip(2, 1050);
}
static void test_gfx1151(void **) {
    test_chip(3, 1200);
}
static void test_gfx1201(void **) {
    test_chip(4, 1150);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gfx90a), cmocka_unit_test(test_gfx942), cmocka_unit_test(test_gfx950),
        cmocka_unit_test(test_gfx1151), cmocka_unit_test(test_gfx1201)};
    const char *seed = getenv("QUERN_TEST_SEED");
    test_seed = seed ? strtoull(seed, nullptr, 0) : test_seed;
    if (sim_exec_lacks(SIM_EXEC_BASELINE) ||
        (sim_exec_lacks(SIM_EXEC_AVX2) && sim_exec_lacks(SIM_EXEC_AVX512))) {
        print_message("there is one build only that this processor runs: skipped\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
