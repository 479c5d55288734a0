// SPDX-License-Identifier: Apache-2.0
// Vector operands with modifiers: DPP, SDWA, neg, abs and denormals on the way in; omod, clamp, denormals, parts
// of registers and lane masks on the way out.
#include "exec.h"

#include <fenv.h>

// ---- DPP

/** Lanes whose DPP source exists and is active. */
static uint64_t dpp_valid(const sim_wave *w, const sim_inst *inst) {
    uint64_t valid = 0;
    if (w->exec == UINT64_MAX || (inst->flags & SIM_DPP_FI)) {
        return inst->dpp_exists;
    }
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        valid |= (w->exec >> inst->dpp_lane[lane] & 1) << lane;
    }
    return valid & inst->dpp_exists;
}

static void dpp_read(const sim_wave *w, const sim_inst *inst, const uint32_t *row, uint32_t *out) {
    uint64_t valid = dpp_valid(w, inst);
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        out[lane] = row[inst->dpp_lane[lane]];
    }
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        store16(out + k, load16(out + k) & lanes16((uint32_t)(valid >> k) & 0xffff));
    }
}

uint64_t sim_write_mask(const sim_wave *w, const sim_inst *inst) {
    if (!(inst->flags & SIM_DPP)) {
        return w->exec;
    }
    uint64_t valid = inst->flags & SIM_DPP_BOUND_CTRL ? UINT64_MAX : dpp_valid(w, inst);
    return valid & inst->dpp_writes & w->exec;
}

// ---- sources

static uint32_t sdwa_part(uint32_t value, const sim_operand *op) {
    bool extend = op->mods & SIM_SEXT;
    if (op->sdwa_sel < 4) {
        uint8_t byte = (uint8_t)(value >> 8 * op->sdwa_sel);
        return extend ? (uint32_t)(int8_t)byte : byte;
    }
    if (op->sdwa_sel < 6) {
        uint16_t word = (uint16_t)(value >> 16 * (op->sdwa_sel - 4));
        return extend ? (uint32_t)(int16_t)word : word;
    }
    return value;
}

/** Applies neg and abs where the operand's type has its sign. */
static uint32_t float_mods32(uint32_t value, const sim_operand *op) {
    uint32_t sign = op->type == 'h' || op->type == 'w' ? 0x8000 : 0x80000000;
    value = op->mods & SIM_ABS ? value & ~sign : value;
    return op->mods & SIM_NEG ? value ^ sign : value;
}

static uint32_t flush32(uint32_t value, char type) {
    if (type == 'f') {
        return value & 0x7f800000 ? value : value & 0x80000000;
    }
    return value & 0x7c00 ? value : value & ~0x3ffu;
}

/** Whether MODE flushes denormals of this type; `output` tells results from sources. */
static bool flushes(const sim_wave *w, char type, bool output) {
    unsigned field = type == 'f' || type == 'F' ? w->mode >> 4 : w->mode >> 6;
    bool is_float = type == 'f' || type == 'h' || type == 'x' || type == 'd';
    return is_float && !(field >> output & 1);
}

/** op_sel of a 16-bit source takes the upper half. Packed instructions read op_sel themselves. */
static bool takes_high_half(const sim_inst *inst, unsigned i) {
    char type = inst->src[i].type;
    return (type == 'h' || type == 'w') && (inst->op_sel >> i & 1);
}

const uint32_t *sim_row32(const sim_wave *w, const sim_inst *inst, unsigned i,
                          uint32_t tmp[SIM_LANES]) {
    const sim_operand *op = &inst->src[i];
    bool flush = flushes(w, op->type, false), high = takes_high_half(inst, i);
    bool dpp = i == 0 && (inst->flags & SIM_DPP);
    if (op->kind == SIM_OP_VGPR) {
        const uint32_t *row = w->v[op->reg];
        if (!dpp && !high && !flush && !op->mods && op->sdwa_sel == 6) {
            return row;
        }
        if (dpp) {
            dpp_read(w, inst, row, tmp);
        } else {
            memcpy(tmp, row, SIM_LANES * sizeof *tmp);
        }
    } else {
        uint32_t value = sim_read32(w, op);
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            tmp[lane] = value;
        }
    }
    if (!op->mods && op->sdwa_sel == 6 && !flush && !high) {
        return tmp;
    }
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        uint32_t value = sdwa_part(high ? tmp[lane] >> 16 : tmp[lane], op);
        value = float_mods32(value, op);
        tmp[lane] = flush ? flush32(value, op->type) : value;
    }
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
    bool flush = flushes(w, op->type, false), dpp = i == 0 && (inst->flags & SIM_DPP);
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
    for (unsigned lane = SIM_LANES; lane < 2 * SIM_LANES; lane++) {
        tmp[lane] = float_mods32(tmp[lane], op);
        if (flush && !(tmp[lane] & 0x7ff00000)) {
            tmp[lane] &= 0x80000000;
            tmp[lane - SIM_LANES] = 0;
        }
    }
    return tmp;
}

// ---- results

/** omod acts only where results' denormals are flushed and IEEE mode is off. */
static float scale_of_omod(const sim_wave *w, const sim_inst *inst, char type) {
    static const float scale[] = {1, 2, 4, 0.5f};
    bool ignored = (w->mode & SIM_MODE_IEEE) || !flushes(w, type, true);
    return ignored ? 1 : scale[inst->omod];
}

/** Clamp to 0..1; NaN becomes 0 with DX10_CLAMP. */
static double clamp(const sim_wave *w, double value) {
    if (!(value == value)) {
        return w->mode & SIM_MODE_DX10_CLAMP ? 0 : value;
    }
    return value > 1 ? 1 : value > 0 ? value : 0;
}

static uint32_t modify_f32(const sim_wave *w, const sim_inst *inst, uint32_t bits) {
    float value = as_f32(bits);
    if (inst->omod) {
        value *= scale_of_omod(w, inst, 'f');
    }
    bits = f32_bits(inst->flags & SIM_CLAMP ? (float)clamp(w, (double)value) : value);
    return flushes(w, 'f', true) ? flush32(bits, 'f') : bits;
}

/** The lanes of source i whose infinity (or zero, a pole) a result may keep. */
static u32x16 keeps_infinity(const sim_inst *inst, unsigned i, u32x16 value) {
    char type = inst->src[i].type;
    bool is_pole = inst->overflow == SIM_HALF_OF_POLE && i == (inst->num_src > 1);
    if (type == 'f') {
        return (u32x16)((value & 0x7fffffff) == 0x7f800000);
    }
    u32x16 size = value & 0x7fff, keep = (u32x16)(size == 0x7c00);
    if (type == 'H') {
        keep |= (u32x16)((value >> 16 & 0x7fff) == 0x7c00);
    }
    keep |= is_pole ? (u32x16)(size == 0) : (u32x16){};
    return strchr("hxH", type) ? keep : (u32x16){};
}

/** MODE.FP16_OVFL; `kept` has the lanes that keep an infinity, for what omod makes of them. */
static void limit_f16(const sim_wave *w, const sim_inst *inst, uint32_t result[SIM_LANES],
                      uint32_t kept[SIM_LANES]) {
    uint32_t tmp[SIM_LANES];
    memset(kept, 0, SIM_LANES * sizeof *kept);
    for (unsigned i = 0; i < inst->num_src; i++) {
        const uint32_t *row = sim_row32(w, inst, i, tmp);
        for (unsigned k = 0; k < SIM_LANES; k += 16) {
            store16(kept + k, load16(kept + k) | keeps_infinity(inst, i, load16(row + k)));
        }
    }
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        store16(result + k, sim_limit_f16(w, load16(result + k), load16(kept + k)));
    }
}

static uint32_t modify_f16(const sim_wave *w, const sim_inst *inst, uint32_t bits) {
    uint16_t low = (uint16_t)bits;
    _Float16 value;
    memcpy(&value, &low, sizeof value);
    if (inst->omod) {
        value = (_Float16)((float)value * scale_of_omod(w, inst, 'h'));
    }
    if (inst->flags & SIM_CLAMP) {
        value = (_Float16)clamp(w, (double)value);
    }
    memcpy(&low, &value, sizeof low);
    return flushes(w, 'h', true) ? flush32(low, 'h') : low;
}

static bool is_modified(const sim_wave *w, const sim_inst *inst, char type) {
    bool is_float = type == 'f' || type == 'h' || type == 'x' || type == 'd';
    return is_float && (inst->omod || (inst->flags & SIM_CLAMP) || flushes(w, type, true));
}

static uint32_t sdwa_merge(const sim_inst *inst, uint32_t old, uint32_t value) {
    unsigned sel = inst->sdwa_dst_sel;
    if (sel == 6) {
        return value;
    }
    unsigned bits = sel < 4 ? 8 : 16, shift = sel < 4 ? 8 * sel : 16 * (sel - 4);
    uint32_t mask = ((1u << bits) - 1) << shift, part = value << shift & mask;
    if (inst->sdwa_dst_unused == 2) {
        return part | (old & ~mask);
    }
    bool negative = value >> (bits - 1) & 1;
    bool extend = inst->sdwa_dst_unused == 1 && negative && bits + shift < 32;
    return extend ? part | UINT32_MAX << (bits + shift) : part;
}

/** A 16-bit result goes to the half that op_sel bit 3 names; the other half stays. */
static void merge_halves(const sim_inst *inst, const uint32_t *old, uint32_t *result) {
    bool high = inst->op_sel >> 3 & 1;
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 value = load16(result + k) & 0xffff, other = load16(old + k);
        value = high ? value << 16 | (other & 0xffff) : value | (other & 0xffff0000);
        store16(result + k, value);
    }
}

void sim_finish32(sim_wave *w, const sim_inst *inst, uint32_t result[SIM_LANES]) {
    uint32_t *dst = w->v[inst->dst[0].reg];
    char type = inst->dst[0].type;
    bool limits = (type == 'h' || type == 'x') && (w->mode & SIM_MODE_FP16_OVFL);
    uint32_t kept[SIM_LANES];
    if (limits) {
        limit_f16(w, inst, result, kept);
    }
    if (is_modified(w, inst, type)) {
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            result[lane] = type == 'h' || type == 'x' ? modify_f16(w, inst, result[lane])
                                                      : modify_f32(w, inst, result[lane]);
        }
        for (unsigned k = 0; k < SIM_LANES && limits; k += 16) {
            store16(result + k, sim_limit_f16(w, load16(result + k), load16(kept + k)));
        }
    }
    if (inst->flags & SIM_SDWA) {
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            result[lane] = sdwa_merge(inst, dst[lane], result[lane]);
        }
    } else if (type == 'k' || type == 'x') {
        merge_halves(inst, dst, result);
    }
    store_masked(dst, result, sim_write_mask(w, inst));
}

static double modify_f64(const sim_wave *w, const sim_inst *inst, double value) {
    if (inst->omod) {
        value *= (double)scale_of_omod(w, inst, 'd');
    }
    if (inst->flags & SIM_CLAMP) {
        value = clamp(w, value);
    }
    bool tiny = value < 0x1p-1022 && value > -0x1p-1022;
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
    uint64_t mask = sim_write_mask(w, inst);
    store_masked(dst, result, mask);
    store_masked(dst + SIM_LANES, result + SIM_LANES, mask);
}

// ---- rounding

bool sim_rounding_begin(const sim_wave *w, const sim_inst *inst) {
    static const int host_modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    char type = inst->dst[0].type;
    unsigned mode = type == 'f' || type == 'F' ? w->mode & 3 : w->mode >> 2 & 3;
    if (!inst->is_float || !mode) {
        return false;
    }
    fesetround(host_modes[mode]);
    return true;
}

void sim_rounding_end(void) {
    fesetround(FE_TONEAREST);
}
