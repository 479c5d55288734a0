// SPDX-License-Identifier: Apache-2.0
// Vector operands with modifiers: DPP, SDWA, neg, abs and denormals on the way in; omod, clamp,
// denormals, parts of registers and lane masks on the way out.
#include "../numbers.h"
#include "permute.h"

#include <fenv.h>

// ---- DPP

/** Returns the lanes whose DPP source exists and is active. */
static uint64_t dpp_valid(const sim_wave *w, const sim_inst *inst) {
    uint64_t valid = 0;
    if (w->exec == UINT64_MAX || (inst->flags & SIM_DPP_FI))
        return inst->dpp_exists;
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 active = picked_bits16(w->exec, lane_numbers(inst->dpp_lane + k));
        valid |= (uint64_t)bits16(active) << k;
    }
    return valid & inst->dpp_exists;
}

static void dpp_read(const sim_wave *w, const sim_inst *inst, const uint32_t *row, uint32_t *out) {
    const uint64_t valid = dpp_valid(w, inst);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 value = pick16(row, lane_numbers(inst->dpp_lane + k));
        store16(out + k, value & lanes16((uint32_t)(valid >> k) & 0xffff));
    }
}

uint64_t sim_write_mask(const sim_wave *w, const sim_inst *inst) {
    if (!(inst->flags & SIM_DPP))
        return w->exec;
    const uint64_t valid = inst->flags & SIM_DPP_BOUND_CTRL ? UINT64_MAX : dpp_valid(w, inst);
    return valid & inst->dpp_writes & w->exec;
}

// ---- sources

/** Returns whether MODE flushes denormals of this type, of results if `output`, else of
 *  sources. */
static bool flushes(const sim_wave *w, char type, bool output) {
    const unsigned field = type == 'f' || type == 'F' ? w->mode >> 4 : w->mode >> 6;
    const bool is_float = type == 'f' || type == 'h' || type == 'x' || type == 'd';
    return is_float && !(field >> output & 1);
}

/** Returns whether op_sel takes the upper half of a 16-bit source. Packed instructions read op_sel
 *  themselves. */
static bool takes_high_half(const sim_inst *inst, unsigned i) {
    const char type = inst->src[i].type;
    return (type == 'h' || type == 'w') && (inst->op_sel >> i & 1);
}

/** The changes to each lane of a source: a part is cut out, the sign changed, denormals
 *  flushed. */
typedef struct edits {
    uint32_t left, right;    // the part, by shifts
    bool is_signed;          // the part is sign-extended
    uint32_t keep, flip;     // of the sign
    uint32_t exponent, rest; // if no bit of exponent is set, only those of rest stay
} edits;

static void set_sign(edits *e, const sim_operand *op) {
    const uint32_t sign = op->type == 'h' || op->type == 'w' ? 0x8000 : 0x80000000;
    e->keep = op->mods & SIM_ABS ? ~sign : UINT32_MAX;
    e->flip = op->mods & SIM_NEG ? sign : 0;
}

static void set_flush(edits *e, char type, bool flush) {
    const bool single = type == 'f';
    e->exponent = !flush ? UINT32_MAX : single ? 0x7f800000 : 0x7c00;
    e->rest = single ? 0x80000000 : ~0x3ffu;
}

static edits edits_of(const sim_operand *op, bool high, bool flush) {
    edits e = {.right = high ? 16 : 0, .is_signed = op->mods & SIM_SEXT};
    if (op->sdwa_sel < 4) {
        e.left = 24 - 8u * op->sdwa_sel;
        e.right = 24;
    } else if (op->sdwa_sel < 6) {
        e.left = op->sdwa_sel == 4 ? 16 : 0;
        e.right = 16;
    }
    set_sign(&e, op);
    set_flush(&e, op->type, flush);
    return e;
}

SIM_INLINE u32x16 flushed16(const edits *e, u32x16 value) {
    return select16((u32x16)((value & e->exponent) != 0), value, value & e->rest);
}

SIM_INLINE u32x16 edited16(const edits *e, u32x16 value) {
    value <<= e->left;
    value = e->is_signed ? (u32x16)((i32x16)value >> (int)e->right) : value >> e->right;
    return flushed16(e, (value & e->keep) ^ e->flip);
}

const uint32_t *sim_row32(const sim_wave *w, const sim_inst *inst, unsigned i,
                          uint32_t tmp[SIM_LANES]) {
    const sim_operand *op = &inst->src[i];
    const bool flush = flushes(w, op->type, false), high = takes_high_half(inst, i);
    const bool edit = high || flush || op->mods || op->sdwa_sel != 6;
    const uint32_t *row = tmp;
    if (op->kind != SIM_OP_VGPR) {
        u32x16 value = (u32x16){} + sim_read32(w, op);
        for (unsigned k = 0; k < SIM_LANES; k += 16)
            store16(tmp + k, value);
    } else if (i == 0 && (inst->flags & SIM_DPP)) {
        dpp_read(w, inst, w->v[op->reg], tmp);
    } else {
        row = w->v[op->reg];
    }
    if (!edit)
        return row;
    edits e = edits_of(op, high, flush);
    for (unsigned k = 0; k < SIM_LANES; k += 16)
        store16(tmp + k, edited16(&e, load16(row + k)));
    return tmp;
}

static void spread64(uint64_t value, uint32_t tmp[2 * SIM_LANES]) {
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        tmp[lane] = (uint32_t)value;
        tmp[SIM_LANES + lane] = (uint32_t)(value >> 32);
    }
}

const uint32_t *sim_row64(const sim_wave *w, const sim_inst *inst, unsigned i,
                          uint32_t tmp[2 * SIM_LANES]) {
    const sim_operand *op = &inst->src[i];
    const bool flush = flushes(w, op->type, false), dpp = i == 0 && (inst->flags & SIM_DPP);
    if (op->kind != SIM_OP_VGPR) {
        spread64(sim_read64(w, op), tmp);
    } else if (dpp) {
        dpp_read(w, inst, w->v[op->reg], tmp);
        dpp_read(w, inst, w->v[op->reg + 1], tmp + SIM_LANES);
    } else if (!op->mods && !flush) {
        return w->v[op->reg];
    } else {
        memcpy(tmp, w->v[op->reg], 2 * SIM_LANES * sizeof *tmp);
    }
    edits e = {};
    set_sign(&e, op);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 high = (load16(tmp + SIM_LANES + k) & e.keep) ^ e.flip;
        u32x16 tiny = flush ? (u32x16)((high & 0x7ff00000) == 0) : (u32x16){};
        store16(tmp + k, load16(tmp + k) & ~tiny);
        store16(tmp + SIM_LANES + k, high & (~tiny | 0x80000000));
    }
    return tmp;
}

// ---- results

/** Returns the factor of omod. It acts only if denormals of results are flushed and IEEE mode is
 *  off. */
static float scale_of_omod(const sim_wave *w, const sim_inst *inst, char type) {
    static const float scale[] = {1, 2, 4, 0.5f};
    const bool ignored = (w->mode & SIM_MODE_IEEE) || !flushes(w, type, true);
    return ignored ? 1 : scale[inst->omod];
}

/** Clamps to 0..1. NaN becomes 0 with DX10_CLAMP. */
static double clamp(const sim_wave *w, double value) {
    if (!(value == value))
        return w->mode & SIM_MODE_DX10_CLAMP ? 0 : value;
    return value > 1 ? 1 : value > 0 ? value : 0;
}

/** Clamps sixteen values as clamp does. NaNs that stay become quiet. */
SIM_INLINE f32x16 clamp16(const sim_wave *w, f32x16 value) {
    f32x16 one = (f32x16){} + 1, inside = choose((u32x16)(value > 0), value, (f32x16){});
    f32x16 nan = w->mode & SIM_MODE_DX10_CLAMP ? (f32x16){} : (f32x16)((u32x16)value | 0x400000);
    return choose(is_nan(value), nan, choose((u32x16)(value > 1), one, inside));
}

/** Returns the lanes of source i whose infinity (or zero, a pole) a result may keep. */
static u32x16 keeps_infinity(const sim_inst *inst, unsigned i, u32x16 value) {
    const char type = inst->src[i].type;
    const bool is_pole = inst->overflow == SIM_HALF_OF_POLE && i == (inst->num_src > 1);
    if (type == 'f')
        return (u32x16)((value & 0x7fffffff) == 0x7f800000);
    u32x16 size = value & 0x7fff, keep = (u32x16)(size == 0x7c00);
    if (type == 'H')
        keep |= (u32x16)((value >> 16 & 0x7fff) == 0x7c00);
    keep |= is_pole ? (u32x16)(size == 0) : (u32x16){};
    return strchr("hxH", type) ? keep : (u32x16){};
}

/** Limits results as MODE.FP16_OVFL says. `kept` gets the lanes that keep an infinity, which omod
 *  needs later. */
static void limit_f16(const sim_wave *w, const sim_inst *inst, uint32_t result[SIM_LANES],
                      uint32_t kept[SIM_LANES]) {
    uint32_t tmp[SIM_LANES];
    memset(kept, 0, SIM_LANES * sizeof *kept);
    for (unsigned i = 0; i < inst->num_src; i++) {
        const uint32_t *row = sim_row32(w, inst, i, tmp);
        for (unsigned k = 0; k < SIM_LANES; k += 16)
            store16(kept + k, load16(kept + k) | keeps_infinity(inst, i, load16(row + k)));
    }
    for (unsigned k = 0; k < SIM_LANES; k += 16)
        store16(result + k, sim_limit_f16(w, load16(result + k), load16(kept + k)));
}

static void modify_f32(const sim_wave *w, const sim_inst *inst, uint32_t *result) {
    const float scale = scale_of_omod(w, inst, 'f');
    edits e;
    set_flush(&e, 'f', flushes(w, 'f', true));
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        f32x16 value = (f32x16)load16(result + k);
        value = inst->omod ? value * scale : value;
        value = inst->flags & SIM_CLAMP ? clamp16(w, value) : value;
        store16(result + k, flushed16(&e, (u32x16)value));
    }
}

static void modify_f16(const sim_wave *w, const sim_inst *inst, uint32_t *result) {
    const float scale = scale_of_omod(w, inst, 'h');
    edits e;
    set_flush(&e, 'h', flushes(w, 'h', true));
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 value = load16(result + k) & 0xffff;
        value = inst->omod ? f16_of_f32(f32_of_f16(value) * scale) : value;
        value = inst->flags & SIM_CLAMP ? f16_of_f32(clamp16(w, f32_of_f16(value))) : value;
        store16(result + k, flushed16(&e, value));
    }
}

static bool is_modified(const sim_wave *w, const sim_inst *inst, char type) {
    const bool is_float = type == 'f' || type == 'h' || type == 'x' || type == 'd';
    return is_float && (inst->omod || (inst->flags & SIM_CLAMP) || flushes(w, type, true));
}

/** Writes SDWA's part of the register. The rest of it is kept, or filled with zeros or the
 *  sign. */
static void merge_part(const sim_inst *inst, const uint32_t *old, uint32_t *result) {
    const unsigned sel = inst->sdwa_dst_sel, bits = sel < 4 ? 8 : 16;
    const unsigned left = 32 - bits, shift = sel < 4 ? 8 * sel : 16 * (sel - 4);
    if (sel == 6)
        return;
    const uint32_t mask = UINT32_MAX >> left << shift;
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 value = load16(result + k) << left, part = value >> left << shift;
        if (inst->sdwa_dst_unused == 2)
            part |= load16(old + k) & ~mask;
        else if (inst->sdwa_dst_unused == 1)
            part = (u32x16)((i32x16)value >> (int)left) << shift;
        store16(result + k, part);
    }
}

/** Writes a 16-bit result to the half that op_sel bit 3 names. The other half keeps its value. */
static void merge_halves(const sim_inst *inst, const uint32_t *old, uint32_t *result) {
    const bool high = inst->op_sel >> 3 & 1;
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 value = load16(result + k) & 0xffff, other = load16(old + k);
        value = high ? value << 16 | (other & 0xffff) : value | (other & 0xffff0000);
        store16(result + k, value);
    }
}

void sim_finish32(sim_wave *w, const sim_inst *inst, uint32_t result[SIM_LANES]) {
    uint32_t *dst = w->v[inst->dst[0].reg];
    const char type = inst->dst[0].type;
    const bool limits = (type == 'h' || type == 'x') && (w->mode & SIM_MODE_FP16_OVFL);
    uint32_t kept[SIM_LANES];
    if (limits)
        limit_f16(w, inst, result, kept);
    if (is_modified(w, inst, type)) {
        if (type == 'h' || type == 'x')
            modify_f16(w, inst, result);
        else
            modify_f32(w, inst, result);
        for (unsigned k = 0; k < SIM_LANES && limits; k += 16)
            store16(result + k, sim_limit_f16(w, load16(result + k), load16(kept + k)));
    }
    if (inst->flags & SIM_SDWA)
        merge_part(inst, dst, result);
    else if (type == 'k' || type == 'x')
        merge_halves(inst, dst, result);
    store_masked(dst, result, sim_write_mask(w, inst));
}

static double modify_f64(const sim_wave *w, const sim_inst *inst, double value) {
    if (inst->omod)
        value *= (double)scale_of_omod(w, inst, 'd');
    if (inst->flags & SIM_CLAMP)
        value = clamp(w, value);
    const bool tiny = value < 0x1p-1022 && value > -0x1p-1022;
    return tiny && flushes(w, 'd', true) ? __builtin_copysign(0.0, value) : value;
}

void sim_finish64(sim_wave *w, const sim_inst *inst, uint32_t result[2 * SIM_LANES]) {
    uint32_t *dst = w->v[inst->dst[0].reg];
    if (is_modified(w, inst, inst->dst[0].type)) {
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            uint64_t bits = result[lane] | (uint64_t)result[SIM_LANES + lane] << 32;
            bits = f64_bits(modify_f64(w, inst, as_f64(bits)));
            result[lane] = (uint32_t)bits;
            result[SIM_LANES + lane] = (uint32_t)(bits >> 32);
        }
    }
    const uint64_t mask = sim_write_mask(w, inst);
    store_masked(dst, result, mask);
    store_masked(dst + SIM_LANES, result + SIM_LANES, mask);
}

// ---- rounding

bool sim_rounding_begin(const sim_wave *w, const sim_inst *inst) {
    static const int host_modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    const char type = inst->dst[0].type;
    const unsigned mode = type == 'f' || type == 'F' ? w->mode & 3 : w->mode >> 2 & 3;
    if (!inst->is_float || !mode)
        return false;
    fesetround(host_modes[mode]);
    return true;
}

void sim_rounding_end(void) {
    fesetround(FE_TONEAREST);
}
