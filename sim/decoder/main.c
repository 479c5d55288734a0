// SPDX-License-Identifier: Apache-2.0
// quern-decoder: disassembles AMD GPU code for the process that started it (decoder.h), and ends
// with that process.
//
// quern-decoder at once stops being a child of that process, so that a program that waits for its
// own children never meets it. It also leaves the session, so that no signal from a terminal
// reaches it.
#include "decoder.h"

#include <dirent.h>
#include <fcntl.h>
#include <llvm-c/Disassembler.h>
#include <llvm-c/Target.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SOCKET = 0, MEMORY = 1, PATIENCE_SECONDS = 20 };

static LLVMDisasmContextRef context_of(const sim_chip *chip, bool wave64) {
    static LLVMDisasmContextRef contexts[SIM_NUM_ARCHS][2];
    LLVMDisasmContextRef *context = &contexts[chip->arch][wave64];
    if (!*context) {
        const char *features = chip->gfx_major == 9 ? ""
                               : wave64             ? "+real-true16,+wavefrontsize64"
                                                    : "+real-true16";
        *context = LLVMCreateDisasmCPUFeatures("amdgcn--amdhsa", chip->name, features, nullptr, 0,
                                               nullptr, nullptr);
    }
    return *context;
}

/** Returns whether an instruction ends the flow. Behind it other functions or data may lie, which
 *  are not decoded until they are reached. */
static bool ends_flow(const char *text) {
    static const char *const names[] = {"s_endpgm", "s_setpc_b64", "s_branch", "s_trap"};
    text += strspn(text, " \t");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(text, names[i], strlen(names[i])))
            return true;
    return false;
}

/** Disassembles one line. Returns false if there is no instruction at `at`. */
static bool disassemble(const sim_decoder_page *page, const sim_chip *chip, uint32_t at,
                        sim_line *line) {
    uint8_t code[SIM_MAX_INST_BYTES + SIM_DECODER_PADDING] = {};
    uint32_t word[4], left = page->size - at;
    memcpy(code, page->code + at, left < SIM_MAX_INST_BYTES ? left : SIM_MAX_INST_BYTES);
    memcpy(word, code, sizeof word);
    if (sim_is_half_literal(chip, word[0])) {
        line->bytes = (uint32_t)sim_print_half_literal(chip, word, line->text);
        return line->bytes && line->bytes <= left;
    }
    LLVMDisasmContextRef context = context_of(chip, page->wave64);
    if (!context || sim_is_refused(chip, word))
        return false;
    const size_t bytes = LLVMDisasmInstruction(context, code, sizeof code, page->pc + at,
                                               line->text, sizeof line->text);
    line->bytes = (uint32_t)bytes;
    return bytes && bytes <= SIM_MAX_INST_BYTES && bytes <= left;
}

static void answer(sim_decoder_page *page) {
    const sim_chip *chip = sim_chip_by_arch((sim_arch)page->arch);
    uint32_t at = 0;
    for (uint32_t i = 0; i < page->wanted && at + 4 <= page->size; i++) {
        sim_line *line = &page->lines[i];
        if (!disassemble(page, chip, at, line))
            break;
        at += line->bytes;
        atomic_store(&page->count, i + 1);
        if (ends_flow(line->text))
            break;
    }
}

static void serve(sim_decoder_page *page) {
    char turn;
    while (recv(SOCKET, &turn, 1, 0) == 1) {
        alarm(PATIENCE_SECONDS); // its signal ends the process
        answer(page);
        alarm(0);
        if (send(SOCKET, &turn, 1, MSG_NOSIGNAL) != 1)
            break;
    }
}

/** Closes the files that this process has of its starter's beside the standard ones: what waits for
 *  the end of a pipe must not wait for this process. The C library's closefrom is of glibc 2.34. */
static void close_others(void) {
    enum { FIRST = 3 };
    if (syscall(SYS_close_range, FIRST, ~0U, 0) == 0)
        return; // Linux 5.9
    DIR *files = opendir("/proc/self/fd");
    for (const struct dirent *file; files && (file = readdir(files));) {
        const int fd = atoi(file->d_name); // 0 for the folder's own two names
        if (fd >= FIRST && fd != dirfd(files))
            close(fd);
    }
    if (files)
        closedir(files);
}

int main(void) {
    void *page =
        mmap(nullptr, sizeof(sim_decoder_page), PROT_READ | PROT_WRITE, MAP_SHARED, MEMORY, 0);
    if (page == MAP_FAILED) {
        fputs("quern-decoder: the simulated GPU's disassembler; libquernsim starts it\n", stderr);
        return 2;
    }
    close_others();
    if (fork() != 0)
        _exit(0);
    if (chdir("/") != 0 || setrlimit(RLIMIT_CORE, &(struct rlimit){}) != 0)
        _exit(1);
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUDisassembler();
    serve(page);
    _exit(0); // no destructors: there is nothing to keep
}
