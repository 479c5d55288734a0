// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes executed as gfx942 code end, fault or run into the limit, and never leave the guest's memory.
//
// The first bytes choose the launch; the rest is the code. s[0:1] points to 64 KiB of memory, which is also full of
// pointers to itself, so that loads and stores find something.
#include "../sim/sim.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MEMORY_BYTES = 65536, LIMIT = 2000, HEADER_BYTES = 4, SLACK = 16 };

static void fill(sim_memory *memory, uint64_t base) {
    uint8_t *host = sim_memory_host(memory, base, MEMORY_BYTES);
    for (uint64_t i = 0; i < MEMORY_BYTES; i += 8) {
        uint64_t value = base + i * 37 % (MEMORY_BYTES + 64);
        memcpy(host + i, &value, 8);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static sim_memory *memory;
    static uint64_t base;
    if (size < HEADER_BYTES + 4) {
        return 0;
    }
    if (!memory) {
        memory = sim_memory_create();
        base = sim_memory_alloc(memory, MEMORY_BYTES, SIM_REGION_DEVICE, 0)->base;
    }
    fill(memory, base);
    uint8_t *code = calloc(1, size + SLACK);
    memcpy(code, data + HEADER_BYTES, size - HEADER_BYTES);
    const sim_chip *chip = sim_chip_by_arch(SIM_GFX942);
    sim_text text = {.chip = chip,
                     .bytes = code,
                     .start = UINT64_C(0x600000000000),
                     .size = (size - HEADER_BYTES) & ~(size_t)3};
    text.slots = calloc(text.size / 4 + 1, sizeof *text.slots);
    sim_kernel kernel = {.name = (char[]){"fuzz"},
                         .entry = text.start,
                         .scratch_bytes = data[0],
                         .rsrc1 = 63 | (uint32_t)data[1] << 12,
                         .rsrc2 = 0x1384, // two user SGPRs, workgroup ids
                         .rsrc3 = 63,
                         .properties = 8}; // the kernel arguments' address
    sim_dispatch dispatch = {.chip = chip,
                             .memory = memory,
                             .kernel = &kernel,
                             .text = &text,
                             .grid = {1, 1, 1},
                             .block = {1 + data[2] % 160u, 1, 1},
                             .lds_bytes = data[3] * 16u,
                             .kernarg = base,
                             .limit = LIMIT};
    sim_dispatch_run(&dispatch);
    sim_text_deinit(&text);
    free(code);
    return 0;
}
