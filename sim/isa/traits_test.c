// SPDX-License-Identifier: Apache-2.0
// The record of instruction facts, of every instruction that random words of every encoding decode
// to: its fields must agree with each other, with the operands, and with what a name of the ISA
// says. A row's words on SCC and on clamp must agree with execution.
#include "words_testing.h"

#include <ctype.h>

enum { TRIES = 64, ROOM = 4096 };
static const char *const chips[] = {"gfx90a", "gfx942", "gfx950", "gfx1151", "gfx1201"};
static const unsigned families[] = {GFX9, GFX9, GFX9, GFX11, GFX12};

static const char *chip;
static const sim_inst *now;
static unsigned num_wrong;

/** What has been met of a row on the current chip. */
typedef struct met {
    const sim_opcode *opcode;
    bool with_clamp, clamped, wrote_scc;
} met;
static met rows[ROOM];
static unsigned num_rows;

static void expect(bool holds, const char *what) {
    if (holds)
        return;
    if (num_wrong++ < 20)
        print_error("%s, %s: %s\n", chip, now->opcode->mnemonic, what);
}

static bool is(uint64_t bits) {
    return now->traits.is & bits;
}

static bool has(const char *part) {
    return strstr(now->opcode->mnemonic, part);
}

static bool begins(const char *part) {
    return !strncmp(now->opcode->mnemonic, part, strlen(part));
}

// ---- by class

/** Reads the last "MxNxK" of a name. */
static bool read_shape(const char *name, unsigned *m, unsigned *n, unsigned *k) {
    bool found = false;
    for (const char *c = name; *c; c++) {
        unsigned a, b, d;
        if (isdigit((unsigned char)*c) && !isdigit((unsigned char)c[-1]) &&
            sscanf(c, "%ux%ux%u", &a, &b, &d) == 3) {
            *m = a, *n = b, *k = d;
            found = true;
        }
    }
    return found;
}

static void check_matrix(const sim_traits *t) {
    const sim_matrix *x = &t->matrix;
    unsigned m, n, k;
    expect(read_shape(now->opcode->mnemonic, &m, &n, &k) && m == x->m && n == x->n && k == x->k,
           "its name has another shape");
    expect(x->passes && x->blocks && x->unit != SIM_MATRIX_NONE, "passes, blocks and unit");
    expect(t->kind == x->inputs && t->kind >= SIM_KIND_MATRIX_I8 && t->kind <= SIM_KIND_MATRIX_F64,
           "its kind is that of its inputs");
    expect((x->unit == SIM_MATRIX_F64) == (x->inputs == SIM_KIND_MATRIX_F64), "the unit of f64");
    expect(t->flow == SIM_FLOW_MATRIX && t->unit == SIM_UNIT_MATRIX, "flow and unit");
    expect(now->num_src > (is(SIM_IS_SPARSE) ? 3 : 2), "sparse forms have a fourth source");
    const unsigned outputs =
        (unsigned)x->m * x->n * x->blocks * (x->unit == SIM_MATRIX_F64 ? 2 : 1);
    if (t->wait_states) // of gfx9: its lanes hold all of D once
        expect(now->dst[0].count * SIM_LANES == outputs, "D holds its outputs");
}

static void check_access(const sim_traits *t) {
    const bool is_store = t->access == SIM_ACCESS_STORE || t->access == SIM_ACCESS_DMA;
    expect(t->stream < SIM_NUM_STREAMS, "something counts it");
    expect(!is_store || !now->num_dst, "a store and LDS-DMA have no destination");
    expect(t->access != SIM_ACCESS_LOAD || now->num_dst == 1, "a load has one");
    expect(t->access == SIM_ACCESS_ATOMIC || !is(SIM_RETURNS | SIM_SWAPS | SIM_COMPARES),
           "atomics alone return, swap and compare");
    expect(t->access == SIM_ACCESS_LOAD || !is(SIM_TRANSPOSES), "loads alone transpose");
    expect(t->access != SIM_ACCESS_DMA || is(SIM_READS_M0), "LDS-DMA reads M0");
    expect(is(SIM_IS_D16) == has("d16"), "d16 stands in the name");
    expect(is(SIM_HAS_FORMAT) == has("_format"), "format stands in the name");
    expect(is(SIM_COMPARES) == (has("cmpswap") && t->klass != SIM_LDS_OP), "compare and swap");
    expect(is(SIM_IS_BLOCK) == has("_block"), "block stands in the name");
    expect(is(SIM_TRANSPOSES) == (has("_tr_b") || has("load_tr")), "tr stands in the name");
}

static void check_vmem(const sim_traits *t) {
    static const char *const names[] = {"", "buffer_", "tbuffer_", "global_", "flat_", "scratch_"};
    expect(t->addressing != SIM_NO_ADDRESS && begins(names[t->addressing]), "how it addresses");
    expect(t->access != SIM_ACCESS_NONE && t->unit == SIM_UNIT_VMEM, "it accesses memory");
    expect((t->access == SIM_ACCESS_ATOMIC) == has("_atomic_"), "atomic stands in the name");
    expect((t->access == SIM_ACCESS_STORE) == has("_store"), "store stands in the name");
    expect((t->kind == SIM_KIND_ATOMIC_RETURN) == is(SIM_RETURNS), "kinds of atomics");
    const bool counts_stores = !t->wait_states;
    const bool is_store =
        t->access == SIM_ACCESS_STORE || (t->access == SIM_ACCESS_ATOMIC && !is(SIM_RETURNS));
    expect(t->stream == (is_store && counts_stores ? SIM_STREAM_STORE : SIM_STREAM_LOAD), "stream");
    check_access(t);
}

static void check_lds(const sim_traits *t) {
    const bool is_load = begins("ds_read") || begins("ds_load");
    const bool is_store = begins("ds_write") || begins("ds_store_") || begins("ds_store_2addr");
    const bool is_none = has("permute") || has("swizzle");
    expect(t->stream == SIM_STREAM_LDS && t->kind == SIM_KIND_LDS, "stream and kind");
    expect(t->access == (is_load    ? SIM_ACCESS_LOAD
                         : is_store ? SIM_ACCESS_STORE
                         : is_none  ? SIM_ACCESS_NONE
                                    : SIM_ACCESS_ATOMIC),
           "access");
    expect(is(SIM_RETURNS) == (t->access == SIM_ACCESS_ATOMIC && now->num_dst), "returns");
    check_access(t);
}

static void check_smem(const sim_traits *t) {
    expect(t->stream == SIM_STREAM_SMEM && t->kind == SIM_KIND_SMEM, "stream and kind");
    expect((t->access == SIM_ACCESS_ATOMIC) == has("_atomic_"), "atomic stands in the name");
    expect((t->access == SIM_ACCESS_STORE) == has("_store_"), "store stands in the name");
    expect((t->access == SIM_ACCESS_LOAD) == (now->num_dst == 1), "what has a result loads");
    expect(t->access != SIM_ACCESS_NONE || has("_dcache_") || has("_probe"),
           "nothing else is idle");
    check_access(t);
}

static void check_valu(const sim_traits *t) {
    static const char *const slow[] = {"v_exp_",  "v_log_", "v_rcp_", "v_rsq_",
                                       "v_sqrt_", "v_sin_", "v_cos_", "v_s_"};
    bool is_trans = false;
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++)
        is_trans |= begins(slow[i]);
    expect((t->unit == SIM_UNIT_TRANS) == is_trans && t->kind == SIM_KIND_VALU, "unit and kind");
    expect(is(SIM_IS_PACKED) == begins("v_pk_"), "packed");
    expect(is(SIM_IS_DOT) == begins("v_dot"), "a dot product");
    expect(!is(SIM_IS_PACKED | SIM_IS_DOT) || has("_fmac_") || has("c_f32_") || has("c_i32_") ||
               now->op_sel_hi || (now->word[1] >> 27 & 3) == 0,
           "op_sel_hi");
    expect(is(SIM_WRITES_EXEC) == begins("v_cmpx_"), "v_cmpx alone writes EXEC");
    expect(!(now->flags & SIM_CLAMP) || now->is_float || is(SIM_SATURATES), "clamp acts");
    expect(!is(SIM_IS_BF16) || has("bf16"), "bf16 stands in the name");
    expect(!is(SIM_INDEXES_SRC | SIM_INDEXES_DST) == !has("rel"), "v_movrel and v_swaprel");
    const bool mixes = now->flags & (SIM_DPP | SIM_DPP8);
    expect(!mixes || t->flow == SIM_FLOW_CROSS, "DPP mixes lanes");
    expect(mixes || (t->flow == SIM_FLOW_SELECT) == begins("v_cndmask_"), "v_cndmask selects");
    expect(mixes || (t->flow == SIM_FLOW_READ_LANE) == begins("v_read"), "lanes are read");
}

static void check_flow(const sim_traits *t) {
    expect((t->kind == SIM_KIND_WAIT) == begins("s_wait"), "kind of waits");
    expect((t->kind == SIM_KIND_BARRIER) == begins("s_barrier"), "kind of barriers");
    expect(t->kind == SIM_KIND_BARRIER || !is(SIM_SIGNALS | SIM_AWAITS), "barriers alone signal");
    expect(t->kind == SIM_KIND_BRANCH || !is(SIM_JUMPS | SIM_IS_CALL), "branches alone jump");
    expect(is(SIM_JUMPS) || !is(SIM_BY_SCC | SIM_BY_VCC), "a condition is a branch's");
    expect(is(SIM_BY_SCC) == has("cbranch_scc") && is(SIM_BY_VCC) == has("cbranch_vcc"),
           "condition");
    expect(is(SIM_IS_NOP) == !strcmp(now->opcode->mnemonic, "s_nop"), "s_nop");
    expect(is(SIM_SLEEPS) == !strcmp(now->opcode->mnemonic, "s_sleep"), "s_sleep");
    expect(is(SIM_SETS_PRIORITY) == !strcmp(now->opcode->mnemonic, "s_setprio"), "s_setprio");
    if (is(SIM_IS_NOP) && t->wait_states)
        expect(t->wait_states == (now->word[0] & 15) + 1, "wait states of s_nop");
}

static void check_one(const sim_inst *inst) {
    const sim_traits *t = &inst->traits;
    const bool is_gfx9 = sim_chip_by_name(chip)->gfx_major == 9;
    now = inst;
    expect(t->klass == inst->opcode->klass && t->known == inst->opcode->known, "columns");
    expect(strchr("mil?", t->known), "how it is known");
    expect(t->unit != SIM_UNIT_BY_CLASS && t->flow != SIM_FLOW_BY_CLASS, "unit and flow");
    expect(!t->wait_states == !is_gfx9, "gfx9 counts wait states");
    expect((t->klass == SIM_MFMA) == (sim_matrix_ops(&t->matrix) != 0),
           "matrices alone have shapes");
    expect(t->klass == SIM_SALU || (t->logic == SIM_LOGIC_NONE && !is(SIM_KEEPS_SCC)),
           "scalars' own");
    expect(t->klass == SIM_VMEM || t->addressing == SIM_NO_ADDRESS, "vector memory's own");
    static void (*const checks[])(const sim_traits *) = {
        [SIM_SALU] = nullptr,      [SIM_SMEM] = check_smem,  [SIM_VALU] = check_valu,
        [SIM_MFMA] = check_matrix, [SIM_LDS_OP] = check_lds, [SIM_VMEM] = check_vmem,
        [SIM_FLOW] = check_flow};
    if (checks[t->klass])
        checks[t->klass](t);
}

// ---- rows

static met *row_of(const sim_opcode *opcode) {
    unsigned i = 0;
    while (i < num_rows && rows[i].opcode != opcode)
        i++;
    assert_true(i < ROOM);
    rows[i].opcode = opcode;
    num_rows += i == num_rows;
    return &rows[i];
}

/** Returns whether an instruction changes SCC, from random registers and either value of SCC. */
static bool changes_scc(test_wave *w, const sim_inst *inst) {
    bool changes = false;
    for (unsigned run = 0; run < 16 && !changes; run++) {
        for (unsigned i = 0; i < 106; i++)
            w->wave.s[i] = (uint32_t)next_biased();
        w->wave.exec = random_exec(run);
        w->wave.scc = run & 1;
        inst->exec(&w->wave, inst);
        changes = w->wave.scc != (run & 1);
    }
    return changes;
}

/** Decodes an instruction with clamp, for which the long forms of vector instructions have room.
 *  Returns false if that is refused. */
static bool decode_clamped(const encoding *e, const test_wave *w, const uint32_t word[4],
                           sim_inst *out) {
    static const uint32_t long_forms[] = {0xd0000000, 0xd4000000, 0xcc000000};
    const uint32_t clamped[4] = {word[0] | 0x8000, word[1], word[2], word[3]};
    char error[SIM_ERROR_BYTES];
    for (size_t i = 0; i < sizeof long_forms / sizeof *long_forms; i++)
        if (e->base == long_forms[i])
            return sim_decode(w->dispatch.chip, (const uint8_t *)clamped, sizeof clamped, 0x1000,
                              out, error) &&
                   (out->flags & SIM_CLAMP);
    return false;
}

/** Returns whether clamp changes what an instruction makes of some random registers. */
static bool clamp_acts(test_wave *w, const sim_inst *with) {
    static sim_wave clamped;
    sim_inst without = *with;
    without.flags &= ~(uint32_t)SIM_CLAMP;
    bool acts = false;
    for (unsigned run = 0; run < 8 && !acts; run++) {
        randomise(w, UINT64_MAX);
        with->exec(&w->wave, with);
        memcpy(&clamped, &w->wave, sizeof clamped);
        memcpy(&w->wave, &w->before, sizeof w->wave);
        without.exec(&w->wave, &without);
        acts = memcmp(clamped.v, w->wave.v, sizeof clamped.v) != 0;
    }
    return acts;
}

static void try_clamp(const encoding *e, test_wave *w, const uint32_t word[4], met *row) {
    sim_inst inst;
    if (!decode_clamped(e, w, word, &inst))
        return;
    row->with_clamp = true;
    row->clamped = clamp_acts(w, &inst);
}

static void try_opcode(test_wave *w, const encoding *e, unsigned opcode) {
    for (unsigned attempt = 0; attempt < TRIES; attempt++) {
        uint32_t word[4];
        char error[SIM_ERROR_BYTES];
        sim_inst inst;
        make_words(e, opcode, attempt, word);
        if (!sim_decode(w->dispatch.chip, (const uint8_t *)word, sizeof word, 0x1000, &inst, error))
            continue;
        check_one(&inst);
        if (inst.second)
            check_one(inst.second);
        met *row = row_of(inst.opcode);
        if ((inst.traits.is & SIM_SATURATES) && !row->clamped)
            try_clamp(e, w, word, row);
        if (inst.traits.klass == SIM_SALU && !row->wrote_scc)
            row->wrote_scc = changes_scc(w, &inst);
        sim_inst_deinit(&inst);
    }
}

static void check_row(const met *row) {
    sim_inst inst = {.opcode = row->opcode, .traits.is = row->opcode->is};
    now = &inst;
    if (is(SIM_SATURATES)) {
        expect(row->with_clamp, "what saturates takes clamp");
        expect(row->clamped, "clamp changes what saturates");
    }
    if (row->opcode->klass == SIM_SALU)
        expect(row->wrote_scc == !is(SIM_KEEPS_SCC), "whether it leaves SCC alone");
}

static void test_every_instruction(void **) {
    for (size_t c = 0; c < sizeof chips / sizeof *chips; c++) {
        chip = chips[c];
        num_rows = 0;
        memset(rows, 0, sizeof rows);
        test_wave *w = make_wave(chip);
        randomise(w, UINT64_MAX);
        for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++)
            for (unsigned o = 0; (encodings[i].family & families[c]) && o < encodings[i].count; o++)
                try_opcode(w, &encodings[i], o);
        for (unsigned i = 0; i < num_rows; i++)
            check_row(&rows[i]);
        print_message("%s: %u rows\n", chip, num_rows);
        sim_faults_deinit(&w->dispatch.faults);
        free(w);
    }
    assert_int_equal(num_wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_instruction)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
