// SPDX-License-Identifier: Apache-2.0
// For the tests of instructions: LLVM's assembler, a wave with random registers, runs of one
// decoded instruction in the builds of exec/.
#ifndef SIM_EXEC_TESTING_H
#define SIM_EXEC_TESTING_H

#include "../isa/isa.h"
#include "../memory.h"
#include "../object/object.h"
#include "../wave.h"

#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

// ---- random numbers

static uint64_t test_seed = 0x9e3779b97f4a7c15;

static inline uint64_t next_random(void) { // splitmix64
    uint64_t z = test_seed += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/** Returns random bits that are often an edge of some type: signs, infinities, NaNs, denormals,
 *  small integers, ones. */
static inline uint64_t next_biased(void) {
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     0x7fffffff,
                                     0x80000000,
                                     0xffffffff,
                                     0x3f800000,
                                     0xbf800000,
                                     0x7f800000,
                                     0xff800000,
                                     0x7fc00000,
                                     0x7f800001,
                                     0x00000001,
                                     0x007fffff,
                                     0x00800000,
                                     0x7f7fffff,
                                     0x3c003c00,
                                     0x7c00fc00,
                                     0x7e000001,
                                     0x04000400,
                                     0x7bff03ff,
                                     0x7ff0000000000000,
                                     0xfff0000000000000,
                                     0x7ff8000000000000,
                                     0x3ff0000000000000,
                                     0x000fffffffffffff,
                                     0x7fefffffffffffff,
                                     0x8000000000000000};
    const uint64_t r = next_random();
    switch (r & 7) {
    case 0:
        return edges[(r >> 8) % (sizeof edges / sizeof *edges)];
    case 1:
        return (uint64_t)(int64_t)(int8_t)(r >> 8);
    case 2: // an f32 (and an f64) of moderate size
        return (r & 0x807fffff807fffff) | 0x3f80000040000000;
    case 3: // two halves of moderate size
        return (r & 0x83ff83ff83ff83ff) | 0x3c003c0040003c00;
    default:
        return r;
    }
}

// ---- assembler

/** Runs the first of the programs that exists, whose name replaces argv[0]. Returns its exit
 *  status, or -1 if none exists. */
static inline int run_tool(const char *const *names, const char **argv) {
    for (; *names; names++) {
        pid_t child;
        int status;
        argv[0] = *names;
        if (posix_spawnp(&child, *names, nullptr, nullptr, (char *const *)(uintptr_t)argv,
                         environ) == 0 &&
            waitpid(child, &status, 0) == child) {
            return WEXITSTATUS(status);
        }
    }
    return -1;
}

static inline int run_assembler(const char *mcpu, const char *input, const char *output) {
    static const char *const names[] = {"llvm-mc-22", "llvm-mc-23", "llvm-mc", nullptr};
    char cpu[64], attributes[64];
    size_t length =
        strcspn(mcpu, ":"); // "gfx1201:+wavefrontsize64": with features beyond the usual
    const bool is_rdna = !strncmp(mcpu, "gfx1", 4);
    snprintf(cpu, sizeof cpu, "-mcpu=%.*s", (int)length, mcpu);
    snprintf(attributes, sizeof attributes, "-mattr=%s%s%s", is_rdna ? "+real-true16" : "",
             is_rdna && mcpu[length] ? "," : "", mcpu[length] ? mcpu + length + 1 : "");
    const char *argv[] = {
        nullptr, "-triple=amdgcn--amdhsa", cpu, attributes, "-filetype=obj", "-o", output, input,
        nullptr};
    return run_tool(names, argv);
}

static inline uint8_t *read_section(int file, size_t *size) {
    Elf64_Ehdr header;
    Elf64_Shdr sections[40], *names = nullptr;
    uint8_t *out = nullptr;
    if (pread(file, &header, sizeof header, 0) != sizeof header || header.e_shnum > 40)
        return nullptr;
    const ssize_t bytes = (ssize_t)(header.e_shnum * sizeof *sections);
    if (pread(file, sections, (size_t)bytes, (off_t)header.e_shoff) != bytes)
        return nullptr;
    names = &sections[header.e_shstrndx];
    for (unsigned i = 0; i < header.e_shnum && !out; i++) {
        char name[6] = "";
        const ssize_t n =
            pread(file, name, sizeof name, (off_t)(names->sh_offset + sections[i].sh_name));
        if (n == sizeof name && !memcmp(name, ".text", sizeof name)) {
            *size = sections[i].sh_size;
            out = calloc(1, *size + 16);
            assert_int_equal(pread(file, out, *size, (off_t)sections[i].sh_offset), *size);
        }
    }
    return out;
}

/** Returns a copy of section .text of an object file; null if there is none. */
static inline uint8_t *read_text(const char *path, size_t *size) {
    const int file = open(path, O_RDONLY);
    uint8_t *text = file >= 0 ? read_section(file, size) : nullptr;
    close(file);
    return text;
}

/** Assembles `source`. Skips the test if there is no assembler, and fails it if the assembler
 *  refuses the source. The caller frees the result. */
static inline uint8_t *assemble(const char *mcpu, const char *source, size_t *size) {
    char input[] = "/tmp/quern-asm-XXXXXX", output[] = "/tmp/quern-obj-XXXXXX";
    const int in = mkstemp(input), out = mkstemp(output);
    assert_true(in >= 0 && out >= 0);
    assert_int_equal(write(in, source, strlen(source)), (ssize_t)strlen(source));
    const int failed = run_assembler(mcpu, input, output);
    uint8_t *text = failed ? nullptr : read_text(output, size);
    close(in);
    close(out);
    unlink(input);
    unlink(output);
    if (failed > 0)
        fail_msg("llvm-mc refused a source for %s", mcpu);
    if (!text) {
        print_message("no llvm-mc on PATH: skipped\n");
        skip();
    }
    return text;
}

// ---- a wave

enum { TEST_LDS_BYTES = 8192 };

typedef struct test_wave {
    sim_wave wave, before;
    sim_workgroup group;
    sim_dispatch dispatch;
    sim_kernel kernel;
    _Alignas(64) uint8_t lds[TEST_LDS_BYTES], lds_before[TEST_LDS_BYTES];
} test_wave;

/** Makes a wave of `arch` with random registers and clang's MODE. */
static inline test_wave *make_wave(const char *arch) {
    static const sim_region nothing;
    test_wave *t = aligned_alloc(64, (sizeof *t + 63) / 64 * 64);
    assert_non_null(t);
    memset(t, 0, sizeof *t);
    t->kernel.name = "test";
    t->dispatch = (sim_dispatch){.chip = sim_chip_by_name(arch),
                                 .kernel = &t->kernel,
                                 .block = {64, 1, 1},
                                 .lds_bytes = TEST_LDS_BYTES};
    t->group =
        (sim_workgroup){.dispatch = &t->dispatch, .num_waves = 1, .lds = t->lds, .waves = &t->wave};
    t->wave.group = &t->group;
    t->wave.region = &nothing;
    t->wave.mode = SIM_MODE_FLOAT_PLAIN | SIM_MODE_IEEE | SIM_MODE_DX10_CLAMP;
    t->wave.shared_base = SIM_SHARED_APERTURE;
    t->wave.private_base = SIM_PRIVATE_APERTURE;
    return t;
}

static inline void randomise(test_wave *t, uint64_t exec) {
    for (unsigned r = 0; r < 512; r += 2) {
        for (unsigned lane = 0; lane < SIM_LANES; lane++) {
            const uint64_t bits = next_biased();
            t->wave.v[r][lane] = (uint32_t)bits;
            t->wave.v[r + 1][lane] = (uint32_t)(bits >> 32);
        }
    }
    for (unsigned i = 0; i < 106; i++)
        t->wave.s[i] = (uint32_t)next_biased();
    t->wave.vcc = next_random();
    t->wave.m0 = 0;
    t->wave.scc = next_random() & 1;
    t->wave.exec = exec;
    t->wave.pc = 0x1000;
    t->wave.state = SIM_RUNNING;
    memcpy(&t->before, &t->wave, sizeof t->wave);
}

static inline uint64_t random_exec(unsigned round) {
    static const uint64_t masks[] = {UINT64_MAX, 0, 1, UINT64_C(1) << 63, 0x00ff00ff0f0f3333};
    return round < 5 ? masks[round] : next_random();
}

/** Decodes an instruction, or fails the test with the decoder's message. */
static inline sim_inst decode_at(const char *arch, const uint8_t *text, size_t size, size_t at) {
    sim_inst inst;
    char error[SIM_ERROR_BYTES];
    if (!sim_decode(sim_chip_by_name(arch), text + at, size - at, 0x1000, &inst, error))
        fail_msg("%s", error);
    return inst;
}

#endif
