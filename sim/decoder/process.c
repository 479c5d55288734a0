// SPDX-License-Identifier: Apache-2.0
// The library's end of the disassembler: starts quern-decoder when it is first needed, asks it, and
// starts another one when it has died. A word that kills two of them is no instruction.
#include "decoder.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    sim_decoder_page *page; // null: none runs
    int socket;
    pid_t owner;  // the process that started the decoder: a forked child needs its own
    bool careful; // a word killed the decoder: disassemble nothing ahead of need
} decoder = {.lock = PTHREAD_MUTEX_INITIALIZER};

// ---- where it is

/** Finds the folder of the file that this function lies in. */
static bool own_folder(char folder[PATH_MAX]) {
    Dl_info info;
    bool known =
        dladdr((void *)&decoder, &info) && info.dli_fname && realpath(info.dli_fname, folder);
    // The path of a program with the simulator linked in may be just its name, if PATH found it.
    if (!known && !realpath("/proc/self/exe", folder))
        return false;
    *strrchr(folder, '/') = '\0';
    return true;
}

/** Finds the program in the library's folder (the build tree) or in quern/sim below it
 *  (installed). */
static bool find_program(char path[PATH_MAX], char error[SIM_ERROR_BYTES]) {
    static const char *const places[] = {"quern-decoder", "quern/sim/quern-decoder"};
    char folder[PATH_MAX] = "";
    for (size_t i = 0; own_folder(folder) && i < sizeof places / sizeof *places; i++) {
        const int n = snprintf(path, PATH_MAX, "%s/%s", folder, places[i]);
        if (n > 0 && n < PATH_MAX && access(path, X_OK) == 0)
            return true;
    }
    snprintf(error, SIM_ERROR_BYTES, "the disassembler is missing: no %s or %s in %.150s",
             places[0], places[1], folder);
    return false;
}

// ---- start and end

/** Starts the program with the socket and the memory as its standard input and output. The program
 *  closes all other files and forks, so that the process which posix_spawn starts ends at once.
 *  Returns 0 or an error number. */
static int spawn(const char *path, int socket, int memory) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    int failed = posix_spawn_file_actions_adddup2(&files, socket, 0);
    failed |= posix_spawn_file_actions_adddup2(&files, memory, 1);
    failed |= posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    pid_t child;
    int status =
        failed ? ENOMEM // the only reason why actions cannot be added
               : posix_spawn(&child, path, &files, &attributes,
                             (char *[]){(char[]){"quern-decoder"}, nullptr}, (char *[]){nullptr});
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    while (status == 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    return status;
}

/** Returns fd's file under a number that is not one of the three standard ones, which a program may
 *  have closed. */
static int beyond_standard(int fd) {
    const int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (fd >= 0)
        close(fd);
    return moved;
}

static void close_file(int fd) {
    if (fd >= 0)
        close(fd);
}

static sim_decoder_page *map_page(int memory) {
    if (memory < 0 || ftruncate(memory, sizeof(sim_decoder_page)) != 0 ||
        fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return nullptr;
    }
    void *page =
        mmap(nullptr, sizeof(sim_decoder_page), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    return page == MAP_FAILED ? nullptr : page;
}

static bool start(char error[SIM_ERROR_BYTES]) {
    char path[PATH_MAX];
    int ends[2] = {-1, -1};
    if (!find_program(path, error))
        return false;
    const int memory =
        beyond_standard(memfd_create("quern-decoder", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    sim_decoder_page *page = map_page(memory);
    int status = page && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? 0 : errno;
    const int theirs = beyond_standard(ends[1]);
    status = status ? status : theirs < 0 ? errno : spawn(path, theirs, memory);
    close_file(theirs);
    close_file(memory);
    if (status) {
        snprintf(error, SIM_ERROR_BYTES, "%scannot start %.150s: %s",
                 status == ENOMEM ? SIM_OUT_OF_MEMORY ": " : "", path, strerror(status));
        close_file(ends[0]);
        if (page)
            munmap(page, sizeof *page);
        return false;
    }
    decoder.page = page;
    decoder.socket = ends[0];
    decoder.owner = getpid();
    return true;
}

/** Stops the decoder, which ends when the socket's last end on this side is closed. */
static void stop(void) {
    if (decoder.page) {
        munmap(decoder.page, sizeof *decoder.page);
        close(decoder.socket);
        decoder.page = nullptr;
    }
}

void sim_disassemble_shutdown(void) {
    pthread_mutex_lock(&decoder.lock);
    stop();
    pthread_mutex_unlock(&decoder.lock);
}

void sim_decode_fork_prepare(void) {
    pthread_mutex_lock(&decoder.lock);
}

void sim_decode_fork_done(void) {
    pthread_mutex_unlock(&decoder.lock);
}

// ---- questions

/** Gives the decoder the turn and waits to get it back. Returns false if the decoder has died. */
static bool take_turns(void) {
    char turn = 0;
    ssize_t n = send(decoder.socket, &turn, 1, MSG_NOSIGNAL);
    while (n == 1 && (n = recv(decoder.socket, &turn, 1, 0)) < 0 && errno == EINTR)
        n = 1;
    return n == 1;
}

/** Copies the lines that the decoder wrote. Another process wrote them, so only sound values are
 *  accepted. */
static unsigned take_lines(unsigned wanted, uint64_t size, sim_line *lines) {
    unsigned count = atomic_load(&decoder.page->count), n = 0;
    uint64_t at = 0;
    while (n < count && n < wanted) {
        sim_line *line = &lines[n];
        line->bytes = decoder.page->lines[n].bytes;
        if (!line->bytes || line->bytes > SIM_MAX_INST_BYTES || line->bytes % 4 ||
            line->bytes > size - at) {
            break;
        }
        const size_t length = strnlen(decoder.page->lines[n].text, sizeof line->text - 1);
        memcpy(line->text, decoder.page->lines[n].text, length);
        line->text[length] = '\0';
        at += line->bytes;
        n++;
    }
    return n;
}

static void write_request(const sim_chip *chip, bool wave64, const uint8_t *code, uint64_t size,
                          uint64_t pc, unsigned wanted) {
    sim_decoder_page *page = decoder.page;
    const uint64_t most = (uint64_t)wanted * SIM_MAX_INST_BYTES;
    page->arch = chip->arch;
    page->wave64 = wave64;
    page->wanted = wanted;
    page->size = (uint32_t)(size < most ? size : most);
    page->pc = pc;
    memcpy(page->code, code, page->size);
    atomic_store(&page->count, 0);
}

/** Asks once. Returns -1 if the decoder died, of the first word or of another cause. */
static int ask(const sim_chip *chip, bool wave64, const uint8_t *code, uint64_t size, uint64_t pc,
               unsigned wanted, sim_line *lines) {
    write_request(chip, wave64, code, size, pc, wanted);
    const bool lives = take_turns();
    const unsigned count = take_lines(wanted, size, lines);
    if (!lives) {
        decoder.careful = true;
        stop();
    }
    return count || lives ? (int)count : -1;
}

unsigned sim_disassemble(const sim_chip *chip, bool wave64, const uint8_t *code, uint64_t size,
                         uint64_t pc, unsigned wanted, sim_line *lines,
                         char error[SIM_ERROR_BYTES]) {
    int count = -1;
    snprintf(error, SIM_ERROR_BYTES, "no %s instruction", chip->name);
    pthread_mutex_lock(&decoder.lock);
    for (int tries = 0; count < 0 && tries < 2; tries++) {
        if (decoder.page && decoder.owner != getpid())
            stop(); // the parent's
        if (!decoder.page && !start(error))
            break;
        count = ask(chip, wave64, code, size, pc, decoder.careful ? 1 : wanted, lines);
    }
    pthread_mutex_unlock(&decoder.lock);
    return count > 0 ? (unsigned)count : 0;
}
