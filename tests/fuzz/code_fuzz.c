// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any instructions, executed on any target with checks on or off, must end, fault
// or run into the limit, and never leave the guest's memory.
//
// The first bytes choose the launch. The other bytes are code as it is, or records from which
// instructions are made that the decoder knows, so that a stream gets further than its first
// unknown word. s[0:1] points to memory full of pointers to itself, and a prologue loads some of
// them, so that loads and stores hit memory.
// Fuzzes: libquernsim
#include "../../sim/isa/encodings.h"
#include "../../sim/isa/isa.h"
#include "../../sim/look/hooks.h"
#include "../../sim/memory.h"
#include "../../sim/object/object.h"
#include "../../sim/options.h"
#include "../../sim/pool.h"
#include "../../sim/report/fault.h"
#include "../../sim/wave.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    MEMORY_BYTES = 60000, // less than a page of the guest's table: on the heap, between redzones
    LIMIT = 2000,
    PROLOGUE_BYTES = 36,
    RECORD_BYTES = 16,
    MAX_RECORDS = 96,
    SLACK = 16,
};

/** How the code is launched. */
typedef struct header {
    uint8_t chip, flags, checks, scratch, float_mode, threads, lds, registers;
} header;

enum {
    MADE = 1,
    WAVE32 = 2,
    SMALL_SCRATCH = 4,
    PRIVATE_BUFFER = 8,
    CHECKED = 16,
    TRACED = 32, // every wave is traced, and counted for a profile
    FAST_MATRIX = 64,
    MANY_GROUPS = 128
};

// s_load_dwordx16 s[16:31], s[0:1], 0; s_waitcnt lgkmcnt(0); v_mov_b32 v2..v5, s16..s19;
// v_lshlrev_b32 v1, 2, v0; s_mov_b32 m0, -1
static const uint32_t prologues[3][PROLOGUE_BYTES / 4] = {
    {0xc0120400, 0, 0xbf8cc07f, 0x7e040210, 0x7e060211, 0x7e080212, 0x7e0a0213, 0x24020082,
     0xbefc00c1},
    {0xf4100400, 0xf8000000, 0xbf89fc07, 0x7e040210, 0x7e060211, 0x7e080212, 0x7e0a0213, 0x30020082,
     0xbefd00c1},
    {0xf4008400, 0xf8000000, 0xbfc70000, 0x7e040210, 0x7e060211, 0x7e080212, 0x7e0a0213, 0x30020082,
     0xbefd00c1}};

static void fill(sim_memory *memory, uint64_t base) {
    uint8_t *host = sim_memory_host(memory, base, MEMORY_BYTES);
    for (uint64_t i = 0; i < MEMORY_BYTES; i += 8) {
        uint64_t value = base + i * 37 % (MEMORY_BYTES + 64);
        memcpy(host + i, &value, 8);
    }
}

/** Makes operands likely to be valid: registers that surely exist, even registers, memory operands
 *  that the prologue has made. The more of a record's words stay as they are, the less likely they
 *  are an instruction. */
static void tame(unsigned how, uint32_t word[4]) {
    word[0] &= how & 1 ? 0xffff1f1f : 0xffffffff;
    word[1] &= how & 2 ? 0x1f1e1e1e : 0xffffffff;
    word[0] &= how & 4 ? 0xfffe00fe : 0xffffffff;
    if (how & 8) // flat, global: address v[2:3], no scalar base
        word[1] = (word[1] & 0xff00ff00) | 0x007f0002;
    if (how & 16) // sources of VOP3: vectors
        word[1] = (word[1] & 0x18020607u) | 0x04020100u;
}

/** Makes the instruction that a record means. Returns its size, 0 if there is none. */
static size_t make_inst(const sim_chip *chip, bool wave64, const uint8_t *record,
                        uint32_t word[4]) {
    const unsigned family = chip->gfx_major == 9 ? GFX9 : chip->gfx_major == 11 ? GFX11 : GFX12;
    const encoding *e = &encodings[record[0] % (sizeof encodings / sizeof *encodings)];
    const unsigned opcode = (record[1] | (unsigned)record[2] << 8) % e->count;
    memcpy(word, record + 4, 12);
    word[3] = word[1] ^ word[2];
    tame(record[3], word);
    word[0] = e->base | opcode << e->shift | (word[0] & e->operands);
    char error[SIM_ERROR_BYTES];
    sim_inst inst;
    if (!(e->family & family) ||
        !sim_decode_wave(chip, wave64, (const uint8_t *)word, 16, 0x1000, &inst, error)) {
        return 0;
    }
    if (!inst.exec || !inst.bytes || inst.num_dst > 2 || inst.num_src > 5)
        abort();
    sim_inst_deinit(&inst);
    return inst.bytes;
}

/** Makes the code of a launch, with SLACK bytes behind it. */
static uint8_t *make_code(const sim_chip *chip, const header *h, bool wave64, const uint8_t *data,
                          size_t size, size_t *code_bytes) {
    const size_t records = size / RECORD_BYTES < MAX_RECORDS ? size / RECORD_BYTES : MAX_RECORDS;
    const size_t room = h->flags & MADE ? PROLOGUE_BYTES + records * RECORD_BYTES : size;
    size_t at = h->flags & MADE ? PROLOGUE_BYTES : 0;
    uint8_t *code = calloc(1, room + SLACK);
    if (!(h->flags & MADE)) {
        memcpy(code, data, size);
        *code_bytes = size & ~(size_t)3;
        return code;
    }
    memcpy(code, prologues[chip->gfx_major == 9 ? 0 : chip->gfx_major - 10], PROLOGUE_BYTES);
    for (size_t i = 0; i < records; i++) {
        uint32_t word[4];
        const size_t bytes = make_inst(chip, wave64, data + i * RECORD_BYTES, word);
        memcpy(code + at, word, bytes);
        at += bytes;
    }
    *code_bytes = at;
    return code;
}

/** Runs a launch with trace and profile; the trace goes nowhere, and the profile's file is
 *  removed. */
static void run_traced(sim_dispatch *dispatch) {
    char error[512];
    sim_look_options options = {
        .trace = "*", .trace_wave = SIM_ALL_WAVES, .trace_file = "/dev/null"};
    snprintf(options.profile, sizeof options.profile, "/tmp/quern-fuzz-%ld", (long)getpid());
    if (!sim_look_configure(&options, error, sizeof error))
        abort();
    sim_dispatch_run(dispatch);
    sim_look_finish();
    unlink(options.profile);
}

static void launch(sim_memory *memory, uint64_t base, const header *h, sim_text *text) {
    enum { KERNARG = 8, BUFFER = 1 };
    const bool is_buffer = h->flags & PRIVATE_BUFFER;
    sim_kernel kernel = {.name = (char[]){"fuzz"},
                         .entry = text->start,
                         .scratch_bytes = h->flags & SMALL_SCRATCH ? h->scratch : h->scratch * 64u,
                         .rsrc1 = (h->registers & 63) | (uint32_t)h->float_mode << 12,
                         .rsrc2 = 0x1380 | (is_buffer ? 6u : 2u) << 1, // and the workgroup's ids
                         .rsrc3 = h->registers & 63,
                         .wave32 = h->flags & WAVE32,
                         .properties = KERNARG | (is_buffer ? BUFFER : 0)};
    sim_dispatch dispatch = {.chip = text->chip,
                             .memory = memory,
                             .kernel = &kernel,
                             .text = text,
                             .grid = {1 + (h->threads & 1), h->flags & MANY_GROUPS ? 3 : 1, 1},
                             .block = {1 + h->threads % 160u, 1, 1},
                             .lds_bytes = h->lds * 17u,
                             .kernarg = base,
                             .check = h->flags & CHECKED ? h->checks & SIM_CHECK_ALL : 0,
                             .fast_matrix = h->flags & FAST_MATRIX,
                             .limit = LIMIT};
    if (h->flags & TRACED)
        run_traced(&dispatch);
    else
        sim_dispatch_run(&dispatch);
    sim_faults_sort(&dispatch.faults);
    free(sim_faults_text(&dispatch));
    sim_faults_deinit(&dispatch.faults);
    sim_pool_shutdown(); // the next launch gets buffers of just its size
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static sim_memory *memory;
    static uint64_t base;
    header h;
    if (size < sizeof h + 4)
        return 0;
    if (!memory) {
        sim_pool_configure(1);
        memory = sim_memory_create();
        base = sim_memory_alloc(memory, MEMORY_BYTES, SIM_REGION_DEVICE, 0)->base;
    }
    fill(memory, base);
    memcpy(&h, data, sizeof h);
    const sim_chip *chip = sim_chip_by_arch((sim_arch)(h.chip % SIM_NUM_ARCHS));
    const bool wave64 = chip->gfx_major == 9 || !(h.flags & WAVE32);
    sim_text text = {.chip = chip, .start = UINT64_C(0x600000000000)};
    uint8_t *code = make_code(chip, &h, wave64, data + sizeof h, size - sizeof h, &text.size);
    text.bytes = code;
    text.slots = calloc(text.size / 4 + 1, sizeof *text.slots);
    launch(memory, base, &h, &text);
    sim_text_deinit(&text);
    free(code);
    return 0;
}
