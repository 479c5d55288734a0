// SPDX-License-Identifier: Apache-2.0
// LDS: reads and writes of every width, paired and strided forms, d16 forms, atomics. Source:
// "CDNA3" ISA, DS.
#include "access.h"

// ---- whole chunks
//
// Almost every access is plain: nothing watches it, and all lanes of a chunk of sixteen are active
// and stay within LDS. Such chunks are taken as vectors, with one load or store if neighbouring
// lanes lie side by side.

enum { CHUNK = 16, NUM_CHUNKS = SIM_LANES / CHUNK };

typedef struct chunks {
    uint32_t live;                       // bit i: all lanes of chunk i are active
    _Alignas(64) uint32_t at[SIM_LANES]; // in LDS, valid where live
} chunks;

/** Finds the addresses of `bytes` of each lane. Returns false if the access is not plain. */
SIM_INLINE bool find_chunks(const sim_wave *w, const sim_inst *inst, uint32_t offset,
                            uint32_t bytes, chunks *out) {
    const uint32_t size = w->group->dispatch->lds_bytes;
    if (w->shadow || w->look || size < bytes) [[clang::unlikely]]
        return false;
    const uint32_t *base = w->v[inst->src[0].reg];
    u32x16 outside = {};
    out->live = 0;
    for (unsigned i = 0; i < NUM_CHUNKS; i++) {
        const uint32_t lanes = w->exec >> CHUNK * i & 0xffff;
        if (lanes == 0xffff) {
            u32x16 at = load16(base + CHUNK * i) + offset;
            outside |= (u32x16)(at > size - bytes);
            store16(out->at + CHUNK * i, at);
            out->live |= 1u << i;
        } else if (lanes) {
            return false;
        }
    }
    return !bits16(outside);
}

/** Returns whether each lane's `bytes` follow those of the lane before. */
SIM_INLINE bool are_side_by_side(u32x16 at, uint32_t bytes) {
    const u32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return !bits16((u32x16)(at != at[0] + lane * bytes));
}

SIM_INLINE u32x16 read_dwords(const uint8_t *lds, const uint32_t *at) {
    u32x16 address = load16(at), out;
    if (are_side_by_side(address, 4)) {
        memcpy(&out, lds + at[0], sizeof out);
        return out;
    }
    if (are_side_by_side(address, 0)) {
        uint32_t value;
        memcpy(&value, lds + at[0], sizeof value);
        return (u32x16){} + value;
    }
    for (unsigned lane = 0; lane < CHUNK; lane++) {
        uint32_t value;
        memcpy(&value, lds + at[lane], sizeof value);
        out[lane] = value;
    }
    return out;
}

/** Reads sixteen lanes' `dwords` in lane order and deals them out to rows. */
SIM_INLINE void read_wide(uint32_t *rows, const uint8_t *lds, const uint32_t *at, uint32_t dwords) {
    _Alignas(64) uint32_t data[CHUNK * 4];
    if (are_side_by_side(load16(at), 4 * dwords))
        memcpy(data, lds + at[0], 4 * CHUNK * dwords);
    else
        for (unsigned lane = 0; lane < CHUNK; lane++)
            memcpy(data + dwords * lane, lds + at[lane], 4 * dwords);
    deal16(rows, data, dwords);
}

SIM_INLINE void read_chunks(const sim_wave *w, uint32_t *rows, const chunks *c, uint32_t dwords) {
    const uint8_t *lds = w->group->lds;
    for (unsigned i = 0; i < NUM_CHUNKS; i++) {
        if (!(c->live >> i & 1))
            continue;
        if (dwords == 1)
            store16(rows + CHUNK * i, read_dwords(lds, c->at + CHUNK * i));
        else
            read_wide(rows + CHUNK * i, lds, c->at + CHUNK * i, dwords);
    }
}

SIM_INLINE void write_chunks(sim_wave *w, const uint32_t *rows, const chunks *c, uint32_t dwords) {
    uint8_t *lds = w->group->lds;
    for (unsigned i = 0; i < NUM_CHUNKS; i++) {
        const uint32_t *at = c->at + CHUNK * i, *from = rows + CHUNK * i;
        if (!(c->live >> i & 1))
            continue;
        _Alignas(64) uint32_t data[CHUNK * 4];
        collect16(data, from, dwords);
        if (are_side_by_side(load16(at), 4 * dwords)) {
            memcpy(lds + at[0], data, 4 * CHUNK * dwords);
            continue;
        }
        for (unsigned lane = 0; lane < CHUNK; lane++) // in order, so the last of equal addresses
                                                      // stays
            memcpy(lds + at[lane], data + dwords * lane, 4 * dwords);
    }
}

// ---- reads

/** Reads `dwords` of every lane, all of which reach LDS: gathers them in lane order, then deals
 *  them out to rows by vector shuffles. */
SIM_INLINE void read_all(uint32_t *rows, const sim_access *at, uint32_t dwords) {
    _Alignas(64) uint32_t data[SIM_LANES * 4];
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        memcpy(data + dwords * lane, at->host[lane], 4 * dwords);
    for (uint32_t k = 0; k < dwords; k++)
        for (unsigned lane = 0; lane < SIM_LANES; lane++)
            rows[SIM_LANES * k + lane] = data[dwords * lane + k];
}

static void read_some(sim_wave *w, uint32_t *rows, const sim_access *at, uint32_t dwords) {
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        uint32_t data[4] = {};
        if (at->mask >> lane & 1)
            memcpy(data, at->host[lane], 4 * dwords);
        for (uint32_t k = 0; k < dwords; k++)
            rows[SIM_LANES * k + (uint32_t)lane] = data[k];
    }
}

static void read_rows(sim_wave *w, uint32_t *rows, const sim_access *at, uint32_t dwords) {
    if (at->mask != UINT64_MAX)
        read_some(w, rows, at, dwords);
    else if (dwords == 4)
        read_all(rows, at, 4);
    else if (dwords == 2)
        read_all(rows, at, 2);
    else
        read_all(rows, at, dwords);
}

SIM_INLINE void read(sim_wave *w, const sim_inst *inst, uint32_t dwords) {
    chunks c;
    if (find_chunks(w, inst, (uint32_t)inst->offset, 4 * dwords, &c)) {
        read_chunks(w, w->v[inst->dst[0].reg], &c, dwords);
        return;
    }
    sim_access at;
    sim_resolve_lds(w, inst, (uint32_t)inst->offset, 4 * dwords, &at);
    read_rows(w, w->v[inst->dst[0].reg], &at, dwords);
}

/** Reads `dwords` twice, each with its own offset in units of `unit` bytes. */
SIM_INLINE void read2(sim_wave *w, const sim_inst *inst, uint32_t dwords, uint32_t unit) {
    chunks c[2];
    if (find_chunks(w, inst, (uint32_t)inst->offset * unit, 4 * dwords, &c[0]) &&
        find_chunks(w, inst, (uint32_t)inst->offset1 * unit, 4 * dwords, &c[1])) {
        read_chunks(w, w->v[inst->dst[0].reg], &c[0], dwords);
        read_chunks(w, w->v[inst->dst[0].reg + dwords], &c[1], dwords);
        return;
    }
    sim_access first, second;
    sim_resolve_lds(w, inst, (uint32_t)inst->offset * unit, 4 * dwords, &first);
    sim_resolve_lds(w, inst, (uint32_t)inst->offset1 * unit, 4 * dwords, &second);
    uint32_t *rows = w->v[inst->dst[0].reg];
    read_rows(w, rows, &first, dwords);
    read_rows(w, rows + SIM_LANES * dwords, &second, dwords);
}

typedef enum width { U8, I8, U16, I16 } width;

static uint32_t read_narrow_lane(const sim_access *at, int lane, width kind) {
    uint16_t half = 0;
    if (!(at->mask >> lane & 1))
        return 0;
    if (kind <= I8) {
        const uint8_t byte = *at->host[lane];
        return kind == U8 ? byte : (uint32_t)(int8_t)byte;
    }
    memcpy(&half, at->host[lane], sizeof half);
    return kind == U16 ? half : (uint32_t)(int16_t)half;
}

static void read_narrow(sim_wave *w, const sim_inst *inst, width kind) {
    sim_access at;
    sim_resolve_lds(w, inst, (uint32_t)inst->offset, kind <= I8 ? 1 : 2, &at);
    uint32_t *row = w->v[inst->dst[0].reg];
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        row[lane] = read_narrow_lane(&at, lane, kind);
    }
}

static void read_half(sim_wave *w, const sim_inst *inst, width kind, bool high) {
    sim_access at;
    sim_resolve_lds(w, inst, (uint32_t)inst->offset, kind <= I8 ? 1 : 2, &at);
    uint32_t *row = w->v[inst->dst[0].reg];
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        const uint32_t value = read_narrow_lane(&at, lane, kind) & 0xffff;
        row[lane] = high ? value << 16 | (row[lane] & 0xffff) : value | (row[lane] & 0xffff0000);
    }
}

/** Reads as gfx950 does: each sixteen lanes read a matrix of `bits`-bit elements in rows of sixteen
 *  columns, lane by lane, and lane i of them receives column i. A lane's 64 bits are a run of
 *  elements of one row. */
static void read_transposed(sim_wave *w, const sim_inst *inst, unsigned bits) {
    sim_access at;
    uint64_t data[SIM_LANES] = {}, mask = (UINT64_C(1) << bits) - 1;
    const unsigned run = 64 / bits, lanes_a_row = 16 / run;
    sim_resolve_lds(w, inst, (uint32_t)inst->offset, 8, &at);
    for (uint64_t left = at.mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        memcpy(&data[lane], at.host[lane], 8);
    }
    uint32_t *rows = w->v[inst->dst[0].reg];
    for (uint64_t left = w->exec; left; left &= left - 1) {
        const unsigned lane = (unsigned)__builtin_ctzll(left), column = lane % 16;
        uint64_t out = 0;
        for (unsigned row = 0; row < run; row++) {
            const unsigned from = lane - column + lanes_a_row * row + column / run;
            out |= (data[from] >> column % run * bits & mask) << row * bits;
        }
        rows[lane] = (uint32_t)out;
        rows[SIM_LANES + lane] = (uint32_t)(out >> 32);
    }
}

/** Loads one value for all lanes, whose address and type are in M0. Source: "RDNA3" ISA, LDS direct
 *  loads. */
static void exec_lds_direct_load(sim_wave *w, const sim_inst *inst) {
    enum { UBYTE, USHORT, DWORD, SBYTE = 4, SSHORT };
    uint32_t address = w->m0 & 0xffff, type = w->m0 >> 16 & 7, value = 0, row[SIM_LANES];
    const uint32_t bytes = type == DWORD ? 4 : type == USHORT || type == SSHORT ? 2 : 1;
    if ((uint64_t)address + bytes <= w->group->dispatch->lds_bytes)
        memcpy(&value, w->group->lds + address, bytes);
    else
        sim_lds_fault(w, inst, 1, (const uint64_t[SIM_LANES]){address}, bytes);
    value = type == SBYTE    ? (uint32_t)(int8_t)value
            : type == SSHORT ? (uint32_t)(int16_t)value
                             : value;
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        row[lane] = value;
    store_masked(w->v[inst->dst[0].reg], row, w->exec);
}

// ---- writes

SIM_INLINE void write_all(const uint32_t *rows, const sim_access *at, uint32_t dwords) {
    _Alignas(64) uint32_t data[SIM_LANES * 4];
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        for (uint32_t k = 0; k < dwords; k++)
            data[dwords * lane + k] = rows[SIM_LANES * k + lane];
    for (unsigned lane = 0; lane < SIM_LANES; lane++)
        memcpy(at->host[lane], data + dwords * lane, 4 * dwords);
}

static void write_some(const uint32_t *rows, const sim_access *at, uint32_t dwords) {
    for (uint64_t left = at->mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        for (uint32_t k = 0; k < dwords; k++)
            memcpy(at->host[lane] + 4 * k, &rows[SIM_LANES * k + (uint32_t)lane], 4);
    }
}

static void write_rows(const uint32_t *rows, const sim_access *at, uint32_t dwords) {
    if (at->mask != UINT64_MAX)
        write_some(rows, at, dwords);
    else if (dwords == 4)
        write_all(rows, at, 4);
    else if (dwords == 2)
        write_all(rows, at, 2);
    else
        write_all(rows, at, dwords);
}

SIM_INLINE void write(sim_wave *w, const sim_inst *inst, uint32_t dwords) {
    chunks c;
    if (find_chunks(w, inst, (uint32_t)inst->offset, 4 * dwords, &c)) {
        write_chunks(w, w->v[inst->src[1].reg], &c, dwords);
        return;
    }
    sim_access at;
    sim_resolve_lds(w, inst, (uint32_t)inst->offset, 4 * dwords, &at);
    write_rows(w->v[inst->src[1].reg], &at, dwords);
}

SIM_INLINE void write2(sim_wave *w, const sim_inst *inst, uint32_t dwords, uint32_t unit) {
    chunks c[2];
    if (find_chunks(w, inst, (uint32_t)inst->offset * unit, 4 * dwords, &c[0]) &&
        find_chunks(w, inst, (uint32_t)inst->offset1 * unit, 4 * dwords, &c[1])) {
        write_chunks(w, w->v[inst->src[1].reg], &c[0], dwords);
        write_chunks(w, w->v[inst->src[2].reg], &c[1], dwords);
        return;
    }
    sim_access at;
    sim_resolve_lds(w, inst, (uint32_t)inst->offset * unit, 4 * dwords, &at);
    write_rows(w->v[inst->src[1].reg], &at, dwords);
    sim_resolve_lds(w, inst, (uint32_t)inst->offset1 * unit, 4 * dwords, &at);
    write_rows(w->v[inst->src[2].reg], &at, dwords);
}

static void write_narrow(sim_wave *w, const sim_inst *inst, uint32_t bytes, bool high) {
    sim_access at;
    sim_resolve_lds(w, inst, (uint32_t)inst->offset, bytes, &at);
    const uint32_t *row = w->v[inst->src[1].reg];
    for (uint64_t left = at.mask; left; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        uint32_t value = high ? row[lane] >> 16 : row[lane];
        memcpy(at.host[lane], &value, bytes);
    }
}

// ---- tables
// clang-format off
#define READS(X) \
    X(ds_read_b32, read, 1) X(ds_read_b64, read, 2) X(ds_read_b96, read, 3) X(ds_read_b128, read, 4) \
    X(ds_read2_b32, read2, 1, 4) X(ds_read2_b64, read2, 2, 8) X(ds_read2st64_b32, read2, 1, 256) \
    X(ds_read2st64_b64, read2, 2, 512) X(ds_read_u8, read_narrow, U8) X(ds_read_i8, read_narrow, I8) \
    X(ds_read_u16, read_narrow, U16) X(ds_read_i16, read_narrow, I16)
#define D16_READS(X) \
    X(ds_read_u8_d16, read_half, U8, false) X(ds_read_u8_d16_hi, read_half, U8, true) \
    X(ds_read_i8_d16, read_half, I8, false) X(ds_read_i8_d16_hi, read_half, I8, true) \
    X(ds_read_u16_d16, read_half, U16, false) X(ds_read_u16_d16_hi, read_half, U16, true)
#define WRITES(X) \
    X(ds_write_b32, write, 1) X(ds_write_b64, write, 2) X(ds_write_b96, write, 3) X(ds_write_b128, write, 4) \
    X(ds_write2_b32, write2, 1, 4) X(ds_write2_b64, write2, 2, 8) X(ds_write2st64_b32, write2, 1, 256) \
    X(ds_write2st64_b64, write2, 2, 512) X(ds_write_b8, write_narrow, 1, false) \
    X(ds_write_b16, write_narrow, 2, false)
#define D16_WRITES(X) X(ds_write_b8_d16_hi, write_narrow, 1, true) X(ds_write_b16_d16_hi, write_narrow, 2, true)

#define WRAP(name, function, ...) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { function(w, inst, __VA_ARGS__); }
READS(WRAP)
D16_READS(WRAP)
WRITES(WRAP)
D16_WRITES(WRAP)

#define ROW(name, function, archs, known, types, access_, ...) \
    SIM_ROW(#name, exec_##function, archs, SIM_LDS_OP, known, types, \
            .access = SIM_ACCESS_##access_ __VA_OPT__(, .is =) __VA_ARGS__)
#define READ_LINE(name, ...) ROW(name, name, GFX9, 'i', "i:", LOAD)
#define WRITE_LINE(name, ...) ROW(name, name, GFX9, 'i', ":", STORE)
#define D16_READ_LINE(name, ...) ROW(name, name, GFX9, 'i', "i:", LOAD, SIM_IS_D16)
#define D16_WRITE_LINE(name, ...) ROW(name, name, GFX9, 'i', ":", STORE, SIM_IS_D16)
// RDNA's names.
#define RENAMED_READS(X) \
    X(ds_load_b32, ds_read_b32) X(ds_load_b64, ds_read_b64) X(ds_load_b96, ds_read_b96) \
    X(ds_load_b128, ds_read_b128) X(ds_load_2addr_b32, ds_read2_b32) X(ds_load_2addr_b64, ds_read2_b64) \
    X(ds_load_2addr_stride64_b32, ds_read2st64_b32) X(ds_load_2addr_stride64_b64, ds_read2st64_b64) \
    X(ds_load_u8, ds_read_u8) X(ds_load_i8, ds_read_i8) X(ds_load_u16, ds_read_u16) X(ds_load_i16, ds_read_i16)
#define RENAMED_D16_READS(X) \
    X(ds_load_u8_d16, ds_read_u8_d16) X(ds_load_u8_d16_hi, ds_read_u8_d16_hi) \
    X(ds_load_i8_d16, ds_read_i8_d16) X(ds_load_i8_d16_hi, ds_read_i8_d16_hi) \
    X(ds_load_u16_d16, ds_read_u16_d16) X(ds_load_u16_d16_hi, ds_read_u16_d16_hi)
#define RENAMED_WRITES(X) \
    X(ds_store_b32, ds_write_b32) X(ds_store_b64, ds_write_b64) X(ds_store_b96, ds_write_b96) \
    X(ds_store_b128, ds_write_b128) X(ds_store_2addr_b32, ds_write2_b32) X(ds_store_2addr_b64, ds_write2_b64) \
    X(ds_store_2addr_stride64_b32, ds_write2st64_b32) X(ds_store_2addr_stride64_b64, ds_write2st64_b64) \
    X(ds_store_b8, ds_write_b8) X(ds_store_b16, ds_write_b16)
#define RENAMED_D16_WRITES(X) \
    X(ds_store_b8_d16_hi, ds_write_b8_d16_hi) X(ds_store_b16_d16_hi, ds_write_b16_d16_hi)
#define RENAMED_READ(name, old) ROW(name, old, GFX11P, 'i', "i:", LOAD)
#define RENAMED_WRITE(name, old) ROW(name, old, GFX11P, 'i', ":", STORE)
#define RENAMED_D16_READ(name, old) ROW(name, old, GFX11P, 'i', "i:", LOAD, SIM_IS_D16)
#define RENAMED_D16_WRITE(name, old) ROW(name, old, GFX11P, 'i', ":", STORE, SIM_IS_D16)
WRAP(ds_read_b64_tr_b16, read_transposed, 16)
WRAP(ds_read_b64_tr_b8, read_transposed, 8)
WRAP(ds_read_b64_tr_b4, read_transposed, 4)
#define TRANSPOSED_LINE(name) ROW(name, name, GFX950, '?', "i:", LOAD, SIM_TRANSPOSES)
static const sim_opcode opcodes[] = {RENAMED_READS(RENAMED_READ) RENAMED_WRITES(RENAMED_WRITE)
    RENAMED_D16_READS(RENAMED_D16_READ) RENAMED_D16_WRITES(RENAMED_D16_WRITE)
    READS(READ_LINE) WRITES(WRITE_LINE) D16_READS(D16_READ_LINE) D16_WRITES(D16_WRITE_LINE)
    // Not counted with other LDS operations: EXPcnt tells that they are done.
    SIM_ROW("lds_direct_load", exec_lds_direct_load, GFX11, SIM_VALU, 'i', "i:")
    SIM_ROW("ds_direct_load", exec_lds_direct_load, GFX12, SIM_VALU, 'i', "i:")
    TRANSPOSED_LINE(ds_read_b64_tr_b16) TRANSPOSED_LINE(ds_read_b64_tr_b8) TRANSPOSED_LINE(ds_read_b64_tr_b4)};
// clang-format on
SIM_TABLE(sim_ops_lds, opcodes);
