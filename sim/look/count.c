// SPDX-License-Identifier: Apache-2.0
// What one instruction adds to the counters.
#include "count.h"

const char *sim_counter_name(sim_counter counter, const sim_chip *chip) {
    static const char *const names[SIM_NUM_COUNTERS][2] = {
#define SIM_COUNTER(id, cdna, rdna) [SIM_COUNT_##id] = {cdna, rdna},
#include "counters.def"
#undef SIM_COUNTER
    };
    return names[counter][chip->gfx_major > 9];
}

/** The counters of instructions of a kind, beside INSTS. */
static const uint8_t counters_of[SIM_NUM_KINDS][3] = {
    [SIM_KIND_SALU] = {SIM_COUNT_SALU},
    [SIM_KIND_SMEM] = {SIM_COUNT_SMEM},
    [SIM_KIND_BRANCH] = {SIM_COUNT_BRANCH},
    [SIM_KIND_MESSAGE] = {SIM_COUNT_MESSAGE},
    [SIM_KIND_WAIT] = {SIM_COUNT_WAIT},
    [SIM_KIND_BARRIER] = {SIM_COUNT_BARRIER},
    [SIM_KIND_INTERNAL] = {SIM_COUNT_INTERNAL},
    [SIM_KIND_CACHE] = {SIM_COUNT_CACHE},
    [SIM_KIND_VALU] = {SIM_COUNT_VALU},
    [SIM_KIND_MATRIX_I8] = {SIM_COUNT_VALU, SIM_COUNT_MATRIX, SIM_COUNT_MATRIX_I8},
    [SIM_KIND_MATRIX_F8] = {SIM_COUNT_VALU, SIM_COUNT_MATRIX, SIM_COUNT_MATRIX_F8},
    [SIM_KIND_MATRIX_F6F4] = {SIM_COUNT_VALU, SIM_COUNT_MATRIX, SIM_COUNT_MATRIX_F6F4},
    [SIM_KIND_MATRIX_F16] = {SIM_COUNT_VALU, SIM_COUNT_MATRIX, SIM_COUNT_MATRIX_F16},
    [SIM_KIND_MATRIX_BF16] = {SIM_COUNT_VALU, SIM_COUNT_MATRIX, SIM_COUNT_MATRIX_BF16},
    [SIM_KIND_MATRIX_XF32] = {SIM_COUNT_VALU, SIM_COUNT_MATRIX, SIM_COUNT_MATRIX_XF32},
    [SIM_KIND_MATRIX_F32] = {SIM_COUNT_VALU, SIM_COUNT_MATRIX, SIM_COUNT_MATRIX_F32},
    [SIM_KIND_MATRIX_F64] = {SIM_COUNT_VALU, SIM_COUNT_MATRIX, SIM_COUNT_MATRIX_F64},
    [SIM_KIND_LDS] = {SIM_COUNT_LDS},
    [SIM_KIND_LOAD] = {SIM_COUNT_VMEM, SIM_COUNT_VMEM_RD},
    [SIM_KIND_STORE] = {SIM_COUNT_VMEM, SIM_COUNT_VMEM_WR},
    // an atomic that returns nothing counts as a store, as in the counters of waits
    [SIM_KIND_ATOMIC] = {SIM_COUNT_VMEM, SIM_COUNT_VMEM_WR},
    [SIM_KIND_ATOMIC_RETURN] = {SIM_COUNT_VMEM, SIM_COUNT_VMEM_RD},
};

static uint64_t num_bytes(const sim_touch *touch) {
    uint64_t bytes = 0;
    for (uint64_t left = touch->mask; left; left &= left - 1)
        bytes += touch->bytes[__builtin_ctzll(left)];
    return bytes;
}

// ---- vector memory

static void add_lines(uint64_t *counters, const sim_touch *touch, uint32_t line_bytes,
                      sim_footprint *loaded, sim_footprint *stored) {
    sim_lines lines = sim_count_lines(touch, line_bytes, loaded, stored);
    counters[SIM_COUNT_LINES] += lines.lines;
    counters[SIM_COUNT_LINE_BYTES] += (uint64_t)lines.lines * line_bytes;
    counters[SIM_COUNT_TOUCHED_BYTES] += lines.bytes;
}

static void count_memory(sim_counts *c, const sim_wave *w, const sim_facts *f) {
    const uint8_t access = f->inst->traits.access;
    sim_counter bytes = access == SIM_ACCESS_STORE    ? SIM_COUNT_STORE_BYTES
                        : access == SIM_ACCESS_ATOMIC ? SIM_COUNT_ATOMIC_BYTES
                                                      : SIM_COUNT_LOAD_BYTES;
    c->counters[bytes] += num_bytes(&f->memory);
    add_lines(c->counters, &f->memory, w->group->dispatch->chip->line_bytes,
              access == SIM_ACCESS_STORE ? nullptr : &c->loaded,
              access == SIM_ACCESS_STORE || access == SIM_ACCESS_ATOMIC ? &c->stored : nullptr);
}

/** Counts an access to scratch. Scratch lies in memory as rows of one dword for each lane, so lanes
 *  that use one offset share lines. */
static void count_scratch(uint64_t *counters, const sim_wave *w, const sim_facts *f) {
    const uint32_t row_bytes = w->wave32 ? 128 : 256,
                   line_bytes = w->group->dispatch->chip->line_bytes;
    const bool is_store = f->inst->traits.access == SIM_ACCESS_STORE;
    counters[is_store ? SIM_COUNT_SCRATCH_STORE_BYTES : SIM_COUNT_SCRATCH_LOAD_BYTES] +=
        num_bytes(&f->scratch);
    sim_touch rows = {.mask = f->scratch.mask};
    for (uint32_t done = 0; rows.mask; done += 4) {
        for (uint64_t left = rows.mask; left; left &= left - 1) {
            const int lane = __builtin_ctzll(left);
            const uint64_t at = f->scratch.address[lane] + done;
            const uint32_t bytes =
                f->scratch.bytes[lane] > done ? f->scratch.bytes[lane] - done : 0;
            rows.address[lane] = at / 4 * row_bytes + 4 * (uint32_t)lane + at % 4;
            rows.bytes[lane] = (uint8_t)(bytes < 4 ? bytes : 4);
            rows.mask &= bytes ? UINT64_MAX : ~(UINT64_C(1) << lane);
        }
        add_lines(counters, &rows, line_bytes, nullptr, nullptr);
    }
}

// ---- LDS

static void count_lds(uint64_t *counters, const sim_wave *w, const sim_facts *f) {
    const uint8_t access = f->inst->traits.access;
    const bool is_dma = access == SIM_ACCESS_DMA; // its lanes lie side by side
    sim_counter bytes = is_dma                        ? SIM_COUNT_LDS_DMA_BYTES
                        : access == SIM_ACCESS_STORE  ? SIM_COUNT_LDS_STORE_BYTES
                        : access == SIM_ACCESS_ATOMIC ? SIM_COUNT_LDS_ATOMIC_BYTES
                                                      : SIM_COUNT_LDS_LOAD_BYTES;
    for (unsigned i = 0; i < f->num_lds; i++) {
        counters[bytes] += num_bytes(&f->lds[i]);
        if (!is_dma) {
            sim_lds_time time = sim_time_lds(w->group->dispatch->chip, &f->lds[i], access);
            counters[SIM_COUNT_LDS_ACTIVE] += time.active;
            counters[SIM_COUNT_LDS_CONFLICT] += time.conflict;
        }
    }
}

// ---- all

static_assert(SIM_COUNT_OPS_F64 - SIM_COUNT_OPS_I8 == SIM_KIND_MATRIX_F64 - SIM_KIND_MATRIX_I8);

static void count_kind(uint64_t *counters, const sim_wave *w, const sim_facts *f) {
    const uint8_t *own = counters_of[f->inst->traits.kind];
    counters[SIM_COUNT_INSTS]++;
    counters[w->wave32 ? SIM_COUNT_WAVE32_INSTS : SIM_COUNT_WAVE64_INSTS]++;
    for (unsigned i = 0; i < sizeof counters_of[0] && own[i]; i++)
        counters[own[i]]++;
    if (f->inst->traits.klass == SIM_VMEM && !sim_is_buffer(&f->inst->traits))
        counters[SIM_COUNT_FLAT]++;
    const uint64_t ops = sim_matrix_ops(&f->inst->traits.matrix);
    if (ops) {
        counters[SIM_COUNT_MATRIX_OPS] += ops;
        const unsigned type = f->inst->traits.kind - SIM_KIND_MATRIX_I8;
        counters[SIM_COUNT_OPS_I8 + type] += ops / 512;
    }
    if (f->inst->traits.kind == SIM_KIND_VALU) {
        counters[SIM_COUNT_LANES] += w->wave32 ? 32 : 64;
        counters[SIM_COUNT_ACTIVE_LANES] += (uint64_t)__builtin_popcountll(f->exec);
    }
}

static void count_scalar(sim_counts *c, const sim_facts *f) {
    enum { LINE = 64 };
    const uint64_t last = f->scalar_address + f->scalar_bytes - 1;
    sim_footprint *touched = f->inst->traits.access == SIM_ACCESS_STORE ? &c->stored : &c->loaded;
    c->counters[SIM_COUNT_SCALAR_BYTES] += f->scalar_bytes;
    for (uint64_t line = f->scalar_address / LINE; line <= last / LINE; line++) {
        c->counters[SIM_COUNT_SCALAR_LINES]++;
        sim_footprint_add(touched, line * LINE);
    }
}

void sim_count(sim_counts *c, const sim_wave *w, const sim_facts *f) {
    if (!f->is_issued) {
        c->counters[SIM_COUNT_INSTS]++;
        c->counters[SIM_COUNT_VSKIPPED]++;
        return;
    }
    count_kind(c->counters, w, f);
    if (f->memory.mask)
        count_memory(c, w, f);
    if (f->scratch.mask)
        count_scratch(c->counters, w, f);
    count_lds(c->counters, w, f);
    if (f->scalar_bytes)
        count_scalar(c, f);
}
