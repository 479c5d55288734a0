// SPDX-License-Identifier: Apache-2.0
// Fills in the traits of a decoded instruction from the columns of its row, its encoding and its
// chip. Sources: "CDNA3" ISA, s_waitcnt; "RDNA3" and "RDNA4" ISA, dependency counters.
#include "isa.h"

#include <string.h>

// ---- what a row leaves to its class

static sim_unit unit_of(const sim_opcode *opcode) {
    static const sim_unit units[] = {[SIM_SALU] = SIM_UNIT_SALU,  [SIM_SMEM] = SIM_UNIT_SMEM,
                                     [SIM_VALU] = SIM_UNIT_VALU,  [SIM_MFMA] = SIM_UNIT_MATRIX,
                                     [SIM_LDS_OP] = SIM_UNIT_LDS, [SIM_VMEM] = SIM_UNIT_VMEM,
                                     [SIM_FLOW] = SIM_UNIT_NONE};
    return opcode->unit != SIM_UNIT_BY_CLASS ? opcode->unit : units[opcode->klass];
}

static sim_flow flow_of(const sim_inst *inst) {
    static const sim_flow flows[] = {[SIM_SALU] = SIM_FLOW_LANES,   [SIM_SMEM] = SIM_FLOW_LANES,
                                     [SIM_VALU] = SIM_FLOW_LANES,   [SIM_MFMA] = SIM_FLOW_MATRIX,
                                     [SIM_LDS_OP] = SIM_FLOW_CROSS, [SIM_VMEM] = SIM_FLOW_LANES,
                                     [SIM_FLOW] = SIM_FLOW_LANES};
    if (inst->flags & (SIM_DPP | SIM_DPP8))
        return SIM_FLOW_CROSS;
    const sim_opcode *opcode = inst->opcode;
    return opcode->flow != SIM_FLOW_BY_CLASS ? opcode->flow : flows[opcode->klass];
}

// ---- memory

static sim_kind_of_access access_of(const sim_inst *inst) {
    const bool is_dma = inst->opcode->klass == SIM_VMEM && (inst->flags & SIM_LDS);
    return is_dma ? SIM_ACCESS_DMA : inst->opcode->access;
}

/** Returns the scope of an access. The compiler's atomic and volatile loads and stores have a scope
 *  beyond the wave. With a hint not to keep the line, glc is a part of the hint. */
static sim_scope scope_of(const sim_inst *inst, sim_arch arch, sim_kind_of_access access) {
    const bool has_store_scopes = arch == SIM_GFX942 || arch == SIM_GFX950 || arch == SIM_GFX1201 ||
                                  arch == SIM_GFX12_GENERIC;
    if ((inst->flags & SIM_SCOPED) || ((inst->flags & SIM_GLC) && !(inst->flags & SIM_STREAMED)))
        return SIM_SCOPE_SOME;
    return access == SIM_ACCESS_STORE && !has_store_scopes ? SIM_SCOPE_UNKNOWN : SIM_SCOPE_NONE;
}

/** Returns the stream of an access. gfx9 counts loads and stores of vector memory together, later
 *  chips apart. An atomic counts as a load if it returns a value, else as a store. */
static uint8_t stream_of(const sim_traits *t, bool is_gfx9) {
    bool is_store =
        t->access == SIM_ACCESS_STORE || (t->access == SIM_ACCESS_ATOMIC && !(t->is & SIM_RETURNS));
    switch (t->klass) {
    case SIM_VMEM:
        return is_store && !is_gfx9 ? SIM_STREAM_STORE : SIM_STREAM_LOAD;
    case SIM_LDS_OP:
        return SIM_STREAM_LDS;
    case SIM_SMEM:
        return SIM_STREAM_SMEM;
    default:
        return SIM_NUM_STREAMS;
    }
}

// ---- waits

static void wait_for(sim_traits *t, unsigned streams, uint32_t left, uint32_t most) {
    for (unsigned i = 0; i < SIM_NUM_STREAMS; i++)
        if (streams >> i & 1)
            t->left[i] = left >= most ? SIM_LEFT_ANY : (uint8_t)left;
}

enum {
    LOADS = 1 << SIM_STREAM_LOAD,
    STORES = 1 << SIM_STREAM_STORE,
    LDS = 1 << SIM_STREAM_LDS,
    SMEM = 1 << SIM_STREAM_SMEM,
};

/** Reads the fields of s_waitcnt. */
static void read_waitcnt(sim_traits *t, uint32_t imm, bool is_gfx9) {
    if (is_gfx9) {
        wait_for(t, LOADS, (imm & 15) | (imm >> 14 & 3) << 4, 63);
        wait_for(t, LDS | SMEM, imm >> 8 & 15, 15);
    } else {
        wait_for(t, LOADS, imm >> 10 & 63, 63);
        wait_for(t, LDS | SMEM, imm >> 4 & 63, 63);
    }
}

/** Reads a wait of gfx10 to gfx12, which counts in its low bits, and in those from the eighth on.
 *  kmcnt has a bit less. */
static void read_single_wait(sim_traits *t, uint32_t imm, sim_wait_for waits) {
    static const struct {
        uint8_t low, high;
    } counted[] = {[SIM_WAIT_LOADS] = {LOADS, 0},
                   [SIM_WAIT_STORES] = {STORES, 0},
                   [SIM_WAIT_LDS] = {LDS, 0},
                   [SIM_WAIT_SMEM] = {SMEM, 0},
                   [SIM_WAIT_LDS_SMEM] = {LDS | SMEM, 0},
                   [SIM_WAIT_LOADS_LDS] = {LDS, LOADS},
                   [SIM_WAIT_STORES_LDS] = {LDS, STORES}};
    wait_for(t, counted[waits].low, imm & 63, waits == SIM_WAIT_SMEM ? 31 : 63);
    wait_for(t, counted[waits].high, imm >> 8 & 63, 63);
}

static void read_wait(sim_traits *t, const sim_inst *inst, bool is_gfx9) {
    const sim_wait_for waits = inst->opcode->waits;
    const uint32_t imm = inst->word[0] & 0xffff;
    memset(t->left, SIM_LEFT_ANY, sizeof t->left);
    if (waits == SIM_WAIT_NOTHING || waits == SIM_WAIT_OTHER)
        return;
    t->is |= SIM_IS_WAIT;
    if (waits == SIM_WAIT_IDLE)
        memset(t->left, 0, sizeof t->left);
    else if (waits == SIM_WAIT_FIELDS)
        read_waitcnt(t, imm, is_gfx9);
    else
        read_single_wait(t, imm, waits);
}

// ---- matrices

/** Returns the kind of matrix instruction. The form that takes 8-, 6- and 4-bit floats runs at the
 *  rate of the widest of them. */
static sim_matrix matrix_of(const sim_inst *inst) {
    enum { FIRST_NARROW = 2 }; // the formats are fp8, bf8, fp6, bf6, fp4
    sim_matrix matrix = inst->opcode->matrix;
    const bool is_wide = inst->cbsz < FIRST_NARROW || inst->blgp < FIRST_NARROW;
    if (matrix.inputs == SIM_KIND_MATRIX_F6F4 && is_wide) {
        matrix.inputs = SIM_KIND_MATRIX_F8;
        matrix.passes *= 2;
    }
    return matrix;
}

// ---- all

static sim_kind kind_of_vmem(const sim_traits *t) {
    switch (t->access) {
    case SIM_ACCESS_STORE:
        return SIM_KIND_STORE;
    case SIM_ACCESS_ATOMIC:
        return t->is & SIM_RETURNS ? SIM_KIND_ATOMIC_RETURN : SIM_KIND_ATOMIC;
    default:
        return SIM_KIND_LOAD;
    }
}

static sim_kind kind_of(const sim_traits *t, sim_wait_for waits) {
    switch (t->unit) {
    case SIM_UNIT_SALU:
        return SIM_KIND_SALU;
    case SIM_UNIT_SMEM:
        return SIM_KIND_SMEM;
    case SIM_UNIT_BRANCH:
        return SIM_KIND_BRANCH;
    case SIM_UNIT_MESSAGE:
        return SIM_KIND_MESSAGE;
    case SIM_UNIT_VALU:
    case SIM_UNIT_TRANS:
        return SIM_KIND_VALU;
    case SIM_UNIT_MATRIX:
        return t->matrix.inputs;
    case SIM_UNIT_LDS:
        return SIM_KIND_LDS;
    case SIM_UNIT_VMEM:
        return kind_of_vmem(t);
    case SIM_UNIT_CACHE:
        return SIM_KIND_CACHE;
    default:
        return t->is & SIM_IS_BARRIER      ? SIM_KIND_BARRIER
               : waits != SIM_WAIT_NOTHING ? SIM_KIND_WAIT
                                           : SIM_KIND_INTERNAL;
    }
}

/** Returns whether a store reads its data late: bytes beyond 8, and in a buffer store only if its
 *  offset is no register. */
static bool is_late_store(const sim_inst *inst, const sim_traits *t) {
    const bool is_buffer = sim_is_buffer(t);
    return t->klass == SIM_VMEM && t->access == SIM_ACCESS_STORE &&
           inst->src[is_buffer ? 0 : 1].count > 2 &&
           !(is_buffer && inst->src[inst->num_src - 1].kind == SIM_OP_SGPR);
}

static uint64_t encoded_traits(const sim_inst *inst, const sim_traits *t) {
    const bool returns =
        t->access == SIM_ACCESS_ATOMIC && (inst->num_dst || (inst->flags & SIM_GLC));
    const bool writes_part = (inst->flags & SIM_SDWA) && inst->sdwa_dst_sel != 6;
    return (returns ? SIM_RETURNS : 0) | (writes_part ? SIM_WRITES_PART : 0) |
           (t->access == SIM_ACCESS_DMA ? SIM_READS_M0 : 0) |
           (is_late_store(inst, t) ? SIM_IS_LATE_STORE : 0);
}

void sim_find_traits(sim_inst *inst, sim_arch arch) {
    const sim_opcode *opcode = inst->opcode;
    const bool is_gfx9 = arch <= SIM_GFX950;
    sim_traits t = {.is = opcode->is,
                    .klass = opcode->klass,
                    .unit = unit_of(opcode),
                    .access = access_of(inst),
                    .addressing = opcode->addressing,
                    .flow = flow_of(inst),
                    .logic = opcode->logic,
                    .known = opcode->known,
                    .matrix = matrix_of(inst)};
    t.is |= encoded_traits(inst, &t);
    t.stream = stream_of(&t, is_gfx9);
    t.scope = scope_of(inst, arch, t.access);
    read_wait(&t, inst, is_gfx9);
    t.kind = kind_of(&t, opcode->waits);
    t.wait_states = !is_gfx9 ? 0 : t.is & SIM_IS_NOP ? (uint8_t)((inst->word[0] & 15) + 1) : 1;
    inst->traits = t;
}
