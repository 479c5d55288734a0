// SPDX-License-Identifier: Apache-2.0
// Atomics on memory and LDS. Lanes act one after another, in order. On memory, each lane's step is
// a host atomic, because workgroups on other threads may share the address. Source: "CDNA3" ISA,
// MUBUF, FLAT and DS.
#include "access.h"
#include "steps.h"

#include <math.h>

// ---- what few instructions do to one lane

/** Subtracts, but stops at 0. */
static uint32_t sub_clamp32(uint32_t old, uint32_t data, uint32_t) {
    return old > data ? old - data : 0;
}
/** Subtracts only if the result is not below 0. */
static uint32_t cond_sub32(uint32_t old, uint32_t data, uint32_t) {
    return old >= data ? old - data : old;
}
static uint32_t cmpswap_f32(uint32_t old, uint32_t data, uint32_t compare) {
    const float x = as_f32(old), y = as_f32(compare);
    return x <= y && x >= y ? data : old;
}

/** Counts around a ring: down by the first operand (in the compare operand's place) if that is
 *  possible, else up by the second. */
static uint32_t wrap32(uint32_t old, uint32_t data, uint32_t step) {
    return old >= step ? old - step : old + data;
}

static uint64_t cmpswap_f64(uint64_t old, uint64_t data, uint64_t compare) {
    return as_f64(old) == as_f64(compare) ? data : old;
}

/** Adds. Of two NaNs, memory's is kept, here and in the functions below, whichever the host's
 *  instruction would keep. */
static float sum_f32(float old, float data) {
    if (isnan(old) || isnan(data))
        return as_f32(f32_bits(isnan(old) ? old : data) | 0x400000);
    return old + data;
}

/** Returns whether data replaces old as the smaller one. A zero is not smaller than another zero,
 *  whatever the signs are. */
static bool is_smaller(double data, double old) {
    return data < old || (isnan(old) && !isnan(data));
}

static uint32_t add_f32(uint32_t old, uint32_t data, uint32_t) {
    return f32_bits(sum_f32(as_f32(old), as_f32(data)));
}
static uint32_t min_f32(uint32_t old, uint32_t data, uint32_t) {
    return is_smaller((double)as_f32(data), (double)as_f32(old)) ? data : old;
}
static uint32_t max_f32(uint32_t old, uint32_t data, uint32_t) {
    return is_smaller((double)-as_f32(data), (double)-as_f32(old)) ? data : old;
}
static uint64_t add_f64(uint64_t old, uint64_t data, uint64_t) {
    const double x = as_f64(old), y = as_f64(data);
    if (isnan(x) || isnan(y))
        return (isnan(x) ? old : data) | UINT64_C(1) << 51;
    return f64_bits(x + y);
}
static uint64_t min_f64(uint64_t old, uint64_t data, uint64_t) {
    return is_smaller(as_f64(data), as_f64(old)) ? data : old;
}
static uint64_t max_f64(uint64_t old, uint64_t data, uint64_t) {
    return is_smaller(-as_f64(data), -as_f64(old)) ? data : old;
}

static uint32_t add_half(uint32_t a, uint32_t b) {
    uint16_t x = (uint16_t)a, y = (uint16_t)b;
    _Float16 p, q;
    memcpy(&p, &x, sizeof p);
    memcpy(&q, &y, sizeof q);
    p = (_Float16)sum_f32((float)p, (float)q);
    memcpy(&x, &p, sizeof x);
    return x;
}

static uint32_t pk_add_f16(uint32_t old, uint32_t data, uint32_t) {
    return add_half(old, data) | add_half(old >> 16, data >> 16) << 16;
}

static uint32_t add_bf16(uint32_t a, uint32_t b) {
    const float sum = sum_f32(as_f32(a << 16), as_f32(b << 16));
    const uint32_t bits = f32_bits(sum);
    return sum == sum ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : bits >> 16 | 0x40;
}

static uint32_t pk_add_bf16(uint32_t old, uint32_t data, uint32_t) {
    return add_bf16(old & 0xffff, data & 0xffff) | add_bf16(old >> 16, data >> 16) << 16;
}

// ---- one wave's worth

typedef struct operands {
    const uint32_t *data, *compare; // rows; 64-bit values have their upper halves in the next row
    uint32_t *result;               // null if nothing is returned
} operands;

/** Returns where a lane's data lie, as the kernel sees it. */
static sim_fault_about place_of(const sim_wave *w, const sim_access *at, int lane, uint32_t bytes) {
    const uint8_t *host = at->host[lane];
    if (at->is_lds)
        return (sim_fault_about){SIM_SPACE_LDS, true, bytes, (uint64_t)(host - w->group->lds), 0};
    const uint64_t offset = (uintptr_t)host - (uintptr_t)w->region->host;
    bool is_known = offset < w->region->bytes; // it may be scratch or, by a flat address, LDS
    return (sim_fault_about){is_known ? SIM_SPACE_MEMORY : SIM_SPACE_NONE, true, bytes,
                             is_known ? w->region->base + offset : 0, 0};
}

/** Returns whether a lane acts. A lane that is not aligned does not, and gets 0. */
static bool acts(sim_wave *w, const sim_inst *inst, const sim_access *at, int lane,
                 uint32_t bytes) {
    if (!(at->mask >> lane & 1))
        return false;
    if ((uintptr_t)at->host[lane] & (bytes - 1)) {
        sim_fault_about about = place_of(w, at, lane, bytes);
        sim_fault_report(w, inst, lane, SIM_FAULT_ALIGN, &about,
                         "atomic on %u bytes at an address that is not a multiple of them", bytes);
        return false;
    }
    return true;
}

static void run32(sim_wave *w, const sim_inst *inst, const sim_access *at, operands op,
                  step32 step) {
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        uint32_t old = 0;
        if (acts(w, inst, at, lane, 4)) {
            const uint32_t compare = op.compare ? op.compare[lane] : 0;
            old = update32((uint32_t *)(void *)at->host[lane], step, op.data[lane], compare);
        }
        if (op.result)
            op.result[lane] = old;
    }
}

static uint64_t lane64(const uint32_t *rows, int lane) {
    return rows ? rows[lane] | (uint64_t)rows[SIM_LANES + lane] << 32 : 0;
}

static void run64(sim_wave *w, const sim_inst *inst, const sim_access *at, operands op,
                  step64 step) {
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        uint64_t old = 0;
        if (acts(w, inst, at, lane, 8)) {
            old = update64((uint64_t *)(void *)at->host[lane], step, lane64(op.data, lane),
                           lane64(op.compare, lane));
        }
        if (op.result) {
            op.result[lane] = (uint32_t)old;
            op.result[SIM_LANES + lane] = (uint32_t)(old >> 32);
        }
    }
}

// ---- operands. In memory, the value to compare with follows the data in the same register tuple,
// and buffer forms return the old value in the data's registers. In DS, the compare value (or mask)
// comes first, as an operand of its own.

static operands memory_operands(sim_wave *w, const sim_inst *inst, uint32_t dwords) {
    const bool returns = inst->flags & SIM_GLC, is_buffer = sim_is_buffer(&inst->traits);
    uint32_t *data = w->v[inst->src[is_buffer ? 0 : 1].reg];
    uint32_t *result = is_buffer ? data : w->v[inst->dst[0].reg];
    return (operands){data, data + SIM_LANES * dwords, returns ? result : nullptr};
}

static operands lds_operands(sim_wave *w, const sim_inst *inst) {
    uint32_t *result = inst->num_dst ? w->v[inst->dst[0].reg] : nullptr;
    const bool compares = inst->num_src > 2;
    const uint32_t *first = w->v[inst->src[1].reg];
    return (operands){compares ? w->v[inst->src[2].reg] : first, compares ? first : nullptr,
                      result};
}

/** Results may lie over the data or the address, so each lane's inputs are read before its result
 *  is written. */
static void memory32(sim_wave *w, const sim_inst *inst, step32 step) {
    sim_access at;
    if (sim_resolve(w, inst, 0, 4, true, &at))
        run32(w, inst, &at, memory_operands(w, inst, 1), step);
}

static void memory64(sim_wave *w, const sim_inst *inst, step64 step) {
    sim_access at;
    if (sim_resolve(w, inst, 0, 8, true, &at))
        run64(w, inst, &at, memory_operands(w, inst, 2), step);
}

static void lds32(sim_wave *w, const sim_inst *inst, step32 step) {
    sim_access at;
    sim_resolve_lds(w, inst, (uint32_t)inst->offset, 4, &at);
    run32(w, inst, &at, lds_operands(w, inst), step);
}

static void lds64(sim_wave *w, const sim_inst *inst, step64 step) {
    sim_access at;
    sim_resolve_lds(w, inst, (uint32_t)inst->offset, 8, &at);
    run64(w, inst, &at, lds_operands(w, inst), step);
}

/** Returns the operands of RDNA's compare and swap, where the data come first, then the value to
 *  compare with. */
static operands swapped(operands op) {
    return (operands){op.compare, op.data, op.result};
}

static void exec_ds_cmpstore_b32(sim_wave *w, const sim_inst *inst) {
    sim_access at;
    sim_resolve_lds(w, inst, (uint32_t)inst->offset, 4, &at);
    run32(w, inst, &at, swapped(lds_operands(w, inst)), cmpswap32);
}

static void exec_ds_cmpstore_b64(sim_wave *w, const sim_inst *inst) {
    sim_access at;
    sim_resolve_lds(w, inst, (uint32_t)inst->offset, 8, &at);
    run64(w, inst, &at, swapped(lds_operands(w, inst)), cmpswap64);
}

static void exec_ds_cmpstore_f32(sim_wave *w, const sim_inst *inst) {
    sim_access at;
    sim_resolve_lds(w, inst, (uint32_t)inst->offset, 4, &at);
    run32(w, inst, &at, swapped(lds_operands(w, inst)), cmpswap_f32);
}

static void exec_ds_cmpstore_f64(sim_wave *w, const sim_inst *inst) {
    sim_access at;
    sim_resolve_lds(w, inst, (uint32_t)inst->offset, 8, &at);
    run64(w, inst, &at, swapped(lds_operands(w, inst)), cmpswap_f64);
}

/** Does two exchanges, each with its own offset in units of `unit` bytes. The results may lie over
 *  the data to store. */
static void exchange2(sim_wave *w, const sim_inst *inst, uint32_t dwords, uint32_t unit) {
    uint32_t results[4][SIM_LANES], stored[4][SIM_LANES];
    for (uint32_t i = 0; i < 2; i++)
        memcpy(stored[dwords * i], w->v[inst->src[1 + i].reg], dwords * sizeof stored[0]);
    for (uint32_t i = 0; i < 2; i++) {
        sim_access at;
        const uint32_t offset = (uint32_t)(i ? inst->offset1 : inst->offset) * unit;
        sim_resolve_lds(w, inst, offset, 4 * dwords, &at);
        operands op = {stored[dwords * i], nullptr, results[dwords * i]};
        if (dwords == 1)
            run32(w, inst, &at, op, swap32);
        else
            run64(w, inst, &at, op, swap64);
    }
    for (uint32_t k = 0; k < 2 * dwords; k++)
        store_masked(w->v[inst->dst[0].reg + k], results[k], w->exec);
}

static void exec_ds_wrxchg2_rtn_b32(sim_wave *w, const sim_inst *inst) {
    exchange2(w, inst, 1, 4);
}
static void exec_ds_wrxchg2_rtn_b64(sim_wave *w, const sim_inst *inst) {
    exchange2(w, inst, 2, 8);
}
static void exec_ds_wrxchg2st64_rtn_b32(sim_wave *w, const sim_inst *inst) {
    exchange2(w, inst, 1, 256);
}
static void exec_ds_wrxchg2st64_rtn_b64(sim_wave *w, const sim_inst *inst) {
    exchange2(w, inst, 2, 512);
}

/** Exchanges each half only where its new value has bit 31, which is not stored. */
static uint64_t condxchg32(uint64_t old, uint64_t data, uint64_t) {
    const uint64_t low = data >> 31 & 1 ? data & 0x7fffffff : (uint32_t)old;
    const uint64_t high = data >> 63 ? data >> 32 & 0x7fffffff : old >> 32;
    return low | high << 32;
}

static void exec_ds_condxchg32_rtn_b64(sim_wave *w, const sim_inst *inst) {
    lds64(w, inst, condxchg32);
}

// ---- tables
// clang-format off
// X(name after "global_atomic_", step, 32 or 64, further properties)
#define MEMORY(X) \
    X(add, add32, 32) X(sub, sub32, 32) X(swap, swap32, 32, SIM_SWAPS) X(and, and32, 32) X(or, or32, 32) \
    X(xor, xor32, 32) X(smin, smin32, 32) X(umin, umin32, 32) X(smax, smax32, 32) X(umax, umax32, 32) \
    X(inc, inc32, 32) X(dec, dec32, 32) X(cmpswap, cmpswap32, 32, SIM_COMPARES) X(add_f32, add_f32, 32) \
    X(pk_add_f16, pk_add_f16, 32) X(pk_add_bf16, pk_add_bf16, 32) \
    X(add_x2, add64, 64) X(sub_x2, sub64, 64) X(swap_x2, swap64, 64, SIM_SWAPS) X(and_x2, and64, 64) \
    X(or_x2, or64, 64) X(xor_x2, xor64, 64) X(smin_x2, smin64, 64) X(umin_x2, umin64, 64) \
    X(smax_x2, smax64, 64) X(umax_x2, umax64, 64) X(inc_x2, inc64, 64) X(dec_x2, dec64, 64) \
    X(cmpswap_x2, cmpswap64, 64, SIM_COMPARES) X(add_f64, add_f64, 64) X(min_f64, min_f64, 64) X(max_f64, max_f64, 64)
// X(name after "ds_", the returning name, step, 32 or 64)
#define LDS(X) \
    X(add_u32, add_rtn_u32, add32, 32) X(sub_u32, sub_rtn_u32, sub32, 32) \
    X(rsub_u32, rsub_rtn_u32, rsub32, 32) X(inc_u32, inc_rtn_u32, inc32, 32) \
    X(dec_u32, dec_rtn_u32, dec32, 32) X(min_i32, min_rtn_i32, smin32, 32) \
    X(max_i32, max_rtn_i32, smax32, 32) X(min_u32, min_rtn_u32, umin32, 32) \
    X(max_u32, max_rtn_u32, umax32, 32) X(and_b32, and_rtn_b32, and32, 32) X(or_b32, or_rtn_b32, or32, 32) \
    X(xor_b32, xor_rtn_b32, xor32, 32) X(mskor_b32, mskor_rtn_b32, mskor32, 32) \
    X(cmpst_b32, cmpst_rtn_b32, cmpswap32, 32) X(wrxchg_b32, wrxchg_rtn_b32, swap32, 32) \
    X(add_f32, add_rtn_f32, add_f32, 32) X(min_f32, min_rtn_f32, min_f32, 32) \
    X(max_f32, max_rtn_f32, max_f32, 32) X(pk_add_f16, pk_add_rtn_f16, pk_add_f16, 32) \
    X(pk_add_bf16, pk_add_rtn_bf16, pk_add_bf16, 32) \
    X(add_u64, add_rtn_u64, add64, 64) X(sub_u64, sub_rtn_u64, sub64, 64) \
    X(rsub_u64, rsub_rtn_u64, rsub64, 64) X(inc_u64, inc_rtn_u64, inc64, 64) \
    X(dec_u64, dec_rtn_u64, dec64, 64) X(min_i64, min_rtn_i64, smin64, 64) \
    X(max_i64, max_rtn_i64, smax64, 64) X(min_u64, min_rtn_u64, umin64, 64) \
    X(max_u64, max_rtn_u64, umax64, 64) X(and_b64, and_rtn_b64, and64, 64) X(or_b64, or_rtn_b64, or64, 64) \
    X(cmpst_f32, cmpst_rtn_f32, cmpswap_f32, 32) X(cmpst_f64, cmpst_rtn_f64, cmpswap_f64, 64) \
    X(mskor_b64, mskor_rtn_b64, mskor64, 64) X(xor_b64, xor_rtn_b64, xor64, 64) X(cmpst_b64, cmpst_rtn_b64, cmpswap64, 64) \
    X(wrxchg_b64, wrxchg_rtn_b64, swap64, 64) X(add_f64, add_rtn_f64, add_f64, 64) \
    X(min_f64, min_rtn_f64, min_f64, 64) X(max_f64, max_rtn_f64, max_f64, 64)

#define WRAP_MEMORY(name, step, bits, ...) \
    static void exec_memory_##name(sim_wave *w, const sim_inst *inst) { memory##bits(w, inst, step); }
#define WRAP_LDS(name, returning, step, bits) \
    static void exec_ds_##name(sim_wave *w, const sim_inst *inst) { lds##bits(w, inst, step); }
MEMORY(WRAP_MEMORY)
WRAP_LDS(wrap_rtn_b32, , wrap32, 32)
WRAP_LDS(sub_clamp_u32, , sub_clamp32, 32)
WRAP_LDS(cond_sub_u32, , cond_sub32, 32)
WRAP_MEMORY(min_f32, min_f32, 32) // RDNA only
WRAP_MEMORY(max_f32, max_f32, 32)
WRAP_MEMORY(sub_clamp, sub_clamp32, 32)
WRAP_MEMORY(cond_sub, cond_sub32, 32)
WRAP_MEMORY(cmpswap_f32, cmpswap_f32, 32)
LDS(WRAP_LDS)

#define ROW_MEMORY(form, name, function, archs, types, ...) \
    SIM_ROW(#form "_atomic_" #name, exec_memory_##function, archs, SIM_VMEM, 'i', types, \
            .access = SIM_ACCESS_ATOMIC, .addressing = ADDRESSING_##form __VA_OPT__(, .is =) __VA_ARGS__)
#define ROWS_MEMORY(name, function, archs, ...) \
    ROW_MEMORY(global, name, function, archs, "r:", __VA_ARGS__) \
    ROW_MEMORY(flat, name, function, archs, "r:", __VA_ARGS__) \
    ROW_MEMORY(buffer, name, function, archs, ":", __VA_ARGS__)
#define ROW_LDS(name, function, archs, types) \
    SIM_ROW("ds_" #name, exec_ds_##function, archs, SIM_LDS_OP, 'i', types, .access = SIM_ACCESS_ATOMIC)
#define LINE_MEMORY(name, step, bits, ...) ROWS_MEMORY(name, name, GFX9, __VA_ARGS__)
#define LINE_LDS(name, returning, step, bits) ROW_LDS(name, name, GFX9, ":") ROW_LDS(returning, name, GFX9, "i:")

// RDNA's names: those of memory, and those of LDS with their returning form. RDNA's compare and
// swap in LDS takes the data first.
#define RENAMED_MEMORY(X) \
    X(add_u32, add, GFX11P) X(sub_u32, sub, GFX11P) X(swap_b32, swap, GFX11P, SIM_SWAPS) X(and_b32, and, GFX11P) \
    X(or_b32, or, GFX11P) X(xor_b32, xor, GFX11P) X(min_i32, smin, GFX11P) X(min_u32, umin, GFX11P) \
    X(max_i32, smax, GFX11P) X(max_u32, umax, GFX11P) X(inc_u32, inc, GFX11P) X(dec_u32, dec, GFX11P) \
    X(cmpswap_b32, cmpswap, GFX11P, SIM_COMPARES) X(add_f32, add_f32, GFX11P) X(min_f32, min_f32, GFX11) \
    X(max_f32, max_f32, GFX11) X(min_num_f32, min_f32, GFX12) X(max_num_f32, max_f32, GFX12) \
    X(csub_u32, sub_clamp, GFX11) X(sub_clamp_u32, sub_clamp, GFX12) X(cond_sub_u32, cond_sub, GFX12) \
    X(cmpswap_f32, cmpswap_f32, GFX11, SIM_COMPARES) \
    X(pk_add_f16, pk_add_f16, GFX12) X(pk_add_bf16, pk_add_bf16, GFX12) X(add_u64, add_x2, GFX11P) \
    X(sub_u64, sub_x2, GFX11P) X(swap_b64, swap_x2, GFX11P, SIM_SWAPS) X(and_b64, and_x2, GFX11P) X(or_b64, or_x2, GFX11P) \
    X(xor_b64, xor_x2, GFX11P) X(min_i64, smin_x2, GFX11P) X(min_u64, umin_x2, GFX11P) \
    X(max_i64, smax_x2, GFX11P) X(max_u64, umax_x2, GFX11P) X(inc_u64, inc_x2, GFX11P) \
    X(dec_u64, dec_x2, GFX11P) X(cmpswap_b64, cmpswap_x2, GFX11P, SIM_COMPARES)
#define SAME_LDS(X) \
    X(add_u32, add_rtn_u32) X(sub_u32, sub_rtn_u32) X(rsub_u32, rsub_rtn_u32) X(inc_u32, inc_rtn_u32) \
    X(dec_u32, dec_rtn_u32) X(min_i32, min_rtn_i32) X(max_i32, max_rtn_i32) X(min_u32, min_rtn_u32) \
    X(max_u32, max_rtn_u32) X(and_b32, and_rtn_b32) X(or_b32, or_rtn_b32) X(xor_b32, xor_rtn_b32) \
    X(mskor_b32, mskor_rtn_b32) X(add_f32, add_rtn_f32) X(add_u64, add_rtn_u64) X(sub_u64, sub_rtn_u64) \
    X(rsub_u64, rsub_rtn_u64) X(inc_u64, inc_rtn_u64) X(dec_u64, dec_rtn_u64) X(min_i64, min_rtn_i64) \
    X(max_i64, max_rtn_i64) X(min_u64, min_rtn_u64) X(max_u64, max_rtn_u64) X(and_b64, and_rtn_b64) \
    X(or_b64, or_rtn_b64) X(xor_b64, xor_rtn_b64) X(mskor_b64, mskor_rtn_b64)
#define RENAMED_LDS(X) \
    X(cmpstore_b32, cmpstore_b32, GFX11P, ":") X(cmpstore_rtn_b32, cmpstore_b32, GFX11P, "i:") \
    X(cmpstore_b64, cmpstore_b64, GFX11P, ":") X(cmpstore_rtn_b64, cmpstore_b64, GFX11P, "i:") \
    X(cmpstore_f32, cmpstore_f32, GFX11, ":") X(cmpstore_rtn_f32, cmpstore_f32, GFX11, "i:") \
    X(cmpstore_f64, cmpstore_f64, GFX11, ":") X(cmpstore_rtn_f64, cmpstore_f64, GFX11, "i:") \
    X(storexchg_2addr_rtn_b32, wrxchg2_rtn_b32, GFX11P, "i:") \
    X(storexchg_2addr_rtn_b64, wrxchg2_rtn_b64, GFX11P, "i:") \
    X(storexchg_2addr_stride64_rtn_b32, wrxchg2st64_rtn_b32, GFX11P, "i:") \
    X(storexchg_2addr_stride64_rtn_b64, wrxchg2st64_rtn_b64, GFX11P, "i:") \
    X(wrxchg2_rtn_b32, wrxchg2_rtn_b32, GFX9, "i:") X(wrxchg2_rtn_b64, wrxchg2_rtn_b64, GFX9, "i:") \
    X(wrxchg2st64_rtn_b32, wrxchg2st64_rtn_b32, GFX9, "i:") X(wrxchg2st64_rtn_b64, wrxchg2st64_rtn_b64, GFX9, "i:") \
    X(condxchg32_rtn_b64, condxchg32_rtn_b64, ALL, "i:") \
    X(sub_clamp_u32, sub_clamp_u32, GFX12, ":") X(sub_clamp_rtn_u32, sub_clamp_u32, GFX12, "i:") \
    X(cond_sub_u32, cond_sub_u32, GFX12, ":") X(cond_sub_rtn_u32, cond_sub_u32, GFX12, "i:") \
    X(min_f64, min_f64, GFX11, ":") X(min_rtn_f64, min_f64, GFX11, "i:") X(max_f64, max_f64, GFX11, ":") \
    X(max_rtn_f64, max_f64, GFX11, "i:") X(min_num_f64, min_f64, GFX12, ":") \
    X(min_num_rtn_f64, min_f64, GFX12, "i:") X(max_num_f64, max_f64, GFX12, ":") \
    X(max_num_rtn_f64, max_f64, GFX12, "i:") X(storexchg_rtn_b32, wrxchg_b32, GFX11P, "i:") X(storexchg_rtn_b64, wrxchg_b64, GFX11P, "i:") \
    X(min_f32, min_f32, GFX11, ":") X(min_rtn_f32, min_f32, GFX11, "i:") X(max_f32, max_f32, GFX11, ":") \
    X(max_rtn_f32, max_f32, GFX11, "i:") X(min_num_f32, min_f32, GFX12, ":") \
    X(min_num_rtn_f32, min_f32, GFX12, "i:") X(max_num_f32, max_f32, GFX12, ":") \
    X(max_num_rtn_f32, max_f32, GFX12, "i:") X(pk_add_f16, pk_add_f16, GFX12, ":") \
    X(pk_add_rtn_f16, pk_add_f16, GFX12, "i:") X(pk_add_bf16, pk_add_bf16, GFX12, ":") \
    X(pk_add_rtn_bf16, pk_add_bf16, GFX12, "i:")
#define SAME_LDS_LINE(name, returning) ROW_LDS(name, name, GFX11P, ":") ROW_LDS(returning, name, GFX11P, "i:")
static const sim_opcode opcodes[] = {
    RENAMED_MEMORY(ROWS_MEMORY) SAME_LDS(SAME_LDS_LINE) RENAMED_LDS(ROW_LDS) MEMORY(LINE_MEMORY) LDS(LINE_LDS)
    ROW_LDS(wrap_rtn_b32, wrap_rtn_b32, GFX9 | GFX11, "i:")};
// clang-format on
SIM_TABLE(sim_ops_atomics, opcodes);
