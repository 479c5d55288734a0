// SPDX-License-Identifier: Apache-2.0
// For the tests of observers: runs programs in assembly as a dispatch.
#ifndef SIM_LOOK_TESTING_H
#define SIM_LOOK_TESTING_H

#include "../exec/exec_testing.h"
#include "../options.h"
#include "hooks.h"

enum { TEST_BUFFER_BYTES = 65536 };

/** The launch of a program. The program's only argument, at s[0:1], is a pointer to a buffer. */
typedef struct test_launch {
    const char *arch, *name;
    uint32_t groups, threads, lds_bytes, scratch_bytes, device, check;
    bool wave64;           // on RDNA
    bool is_joint;         // on RDNA: the workgroup is on two compute units
    bool fails;            // it must end with a fault, else without
    uint32_t buffer_bytes; // 0: TEST_BUFFER_BYTES
    struct sim_clock *clock;
    sim_clock_mode clock_mode;
    sim_clock_result *timed;    // written if there is a clock
    struct sim_demand **demand; // null, or the same; the caller frees it
    uint32_t *result;           // null, or written with the buffer's first word
} test_launch;

/** Runs a program. Returns the guest address of its buffer. */
static inline uint64_t run_program(const test_launch *launch, const char *source) {
    size_t size;
    uint8_t *code = assemble(launch->arch, source, &size);
    sim_memory *memory = sim_memory_create();
    const sim_region *kernarg = sim_memory_alloc(memory, 64, SIM_REGION_KERNARG, 0);
    const uint32_t bytes = launch->buffer_bytes ? launch->buffer_bytes : TEST_BUFFER_BYTES;
    const sim_region *buffer = sim_memory_alloc(memory, bytes, SIM_REGION_DEVICE, 0);
    uint64_t address = buffer->base;
    memcpy(kernarg->host, &address, 8);
    enum { KERNARG = 8, TWO_USERS = 2 << 1, GROUP_ID = 1 << 7, WGP_MODE = 1 << 29 };
    const sim_chip *chip = sim_chip_by_name(launch->arch);
    sim_kernel kernel = {.name = (char *)(uintptr_t)(launch->name ? launch->name : "program"),
                         .entry = 0x10000,
                         .rsrc1 = 63u | (launch->is_joint ? WGP_MODE : 0),
                         .rsrc2 = TWO_USERS | GROUP_ID,
                         .rsrc3 = 15,
                         .scratch_bytes = launch->scratch_bytes,
                         .wave32 = chip->gfx_major > 9 && !launch->wave64,
                         .properties = KERNARG};
    sim_text text = {.chip = chip,
                     .bytes = code,
                     .start = kernel.entry,
                     .size = size,
                     .slots = calloc(size / 4 + 1, sizeof(void *))};
    sim_dispatch d = {.chip = chip,
                      .memory = memory,
                      .kernel = &kernel,
                      .text = &text,
                      .grid = {launch->groups, 1, 1},
                      .block = {launch->threads, 1, 1},
                      .lds_bytes = launch->lds_bytes,
                      .kernarg = kernarg->base,
                      .check = launch->check,
                      .device = launch->device,
                      .clock = launch->clock,
                      .clock_mode = launch->clock_mode,
                      .wants_demand = launch->demand,
                      .limit = 1000000};
    if (sim_dispatch_run(&d) == launch->fails)
        fail_msg("%s: faults: %s", launch->arch, sim_faults_text(&d));
    if (launch->result)
        memcpy(launch->result, buffer->host, sizeof *launch->result);
    if (launch->timed)
        *launch->timed = d.timed;
    if (launch->demand)
        *launch->demand = d.demand;
    sim_faults_deinit(&d.faults);
    sim_text_deinit(&text);
    sim_memory_destroy(memory);
    free(code);
    return address;
}

/** Makes a new file and writes its name to `path`. */
static inline void make_path(char path[64]) {
    strcpy(path, "/tmp/quern-look-XXXXXX");
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
}

/** Returns a whole file as a string, which the caller frees. */
static inline char *read_file(const char *path) {
    enum { ROOM = 1 << 20 };
    const int file = open(path, O_RDONLY);
    char *text = calloc(1, ROOM);
    assert_true(file >= 0 && text);
    assert_true(read(file, text, ROOM - 1) >= 0);
    close(file);
    return text;
}

static inline void configure(const sim_look_options *options) {
    char error[SIM_PATH_BYTES + 256];
    if (!sim_look_configure(options, error, sizeof error))
        fail_msg("%s", error);
}

#endif
