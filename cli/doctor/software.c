// SPDX-License-Identifier: Apache-2.0
// Driver libraries, quern's devices, PyTorch's wheel, clang and the cache.
#include "doctor.h"

#include <errno.h>
#include <glob.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// ---- driver libraries

static void look_at_place(doctor *d, const qn_driver_place *p) {
    const bool is_hip = strcmp(p->kind, "hip") == 0;
    const bool is_wanted = is_hip ? d->num_amd : d->num_nvidia;
    char subject[320];
    snprintf(subject, sizeof subject, "%s, %s", p->where, p->path);
    if (p->is_used)
        doctor_add(d, DOCTOR_FACT, "driver-library", subject, "", "the driver of %s:N", p->kind);
    else if (strncmp(p->found, "not ", 4) != 0) // there, loaded, looked at
        doctor_add(d, is_wanted ? DOCTOR_TROUBLE : DOCTOR_NOTE, "broken-driver-library", subject,
                   is_hip ? "install ROCm whole, or set QUERN_HIP_LIBRARY to another one's library"
                          : "install NVIDIA's driver anew",
                   "cannot be loaded: %s", p->found);
}

/** Returns the list, which the caller frees, and its length. */
static qn_driver_place *places_of(int32_t *count) {
    *count = 0;
    qn_driver_places(nullptr, count);
    qn_driver_place *places = cli_alloc((size_t)(*count + 1) * sizeof *places);
    places->struct_size = sizeof *places;
    const int32_t room = *count;
    qn_driver_places(places, count);
    *count = *count < room ? *count : room;
    return places;
}

static void look_for_library(doctor *d, const qn_driver_place *places, int32_t count,
                             const char *kind) {
    for (int32_t i = 0; i < count; i++)
        if (strcmp(places[i].kind, kind) == 0 && places[i].is_used)
            return;
    doctor_add(
        d, DOCTOR_TROUBLE, "no-driver-library", kind,
        *kind == 'h'
            ? "install ROCm 6 or later, or a PyTorch wheel for ROCm; or set QUERN_HIP_LIBRARY"
            : "install NVIDIA's driver with libcuda.so.1; or set QUERN_CUDA_LIBRARY",
        "there is a card, and no driver library (quern devices --verbose)");
}

static void look_at_devices(doctor *d) {
    int32_t count = 0;
    if (qn_device_list(nullptr, &count) != QN_OK) {
        doctor_add(d, DOCTOR_TROUBLE, "no-devices", "quern devices", "mend what the message names",
                   "%s", qn_last_error());
        return;
    }
    for (int i = 0; i < 2; i++) {
        const char *spec = i ? "cuda:0" : "hip:0";
        qn_device *device = nullptr;
        if (!(i ? d->num_nvidia : d->num_amd))
            continue;
        if (qn_device_open(&device, spec) == QN_OK)
            doctor_add(d, DOCTOR_FACT, "device", spec, "", "opens");
        else
            doctor_add(d, DOCTOR_TROUBLE, "no-device", spec, "mend what the message names", "%s",
                       qn_last_error());
        qn_device_close(device);
    }
    doctor_add(d, DOCTOR_FACT, "devices", "quern devices", "", "%d can be opened", count);
}

void doctor_drivers(doctor *d) {
    int32_t count;
    qn_driver_place *places = places_of(&count);
    for (int32_t i = 0; i < count; i++)
        look_at_place(d, &places[i]);
    if (d->num_amd)
        look_for_library(d, places, count, "hip");
    if (d->num_nvidia)
        look_for_library(d, places, count, "cuda");
    free(places);
    look_at_devices(d);
}

// ---- programs

/** Runs a program and reads the first line of its output. Returns false if it cannot be run, fails
 *  or prints nothing. */
static bool first_line(char *const argv[], char *line, size_t room) {
    posix_spawn_file_actions_t actions;
    int ends[2], status = 0;
    pid_t child;
    *line = 0;
    if (pipe(ends) != 0)
        return false;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", 1, 0);
    const bool is_run = posix_spawnp(&child, argv[0], &actions, nullptr, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    const bool is_read = is_run && from && fgets(line, (int)room, from);
    from ? fclose(from) : close(ends[0]);
    while (is_run && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    line[strcspn(line, "\n")] = 0;
    return is_read && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/** Tells PyTorch's version, and what its wheel was built for, without importing it. */
static const char torch_program[] =
    "import importlib.util as u, pathlib, re\n"
    "s = u.find_spec('torch')\n"
    "if s:\n"
    "    t = (pathlib.Path(s.submodule_search_locations[0]) / 'version.py').read_text()\n"
    "    f = lambda n: (re.search(rf\"^{n}\\b.*= *'([^']+)'\", t, re.M) or [0, ''])[1]\n"
    "    print(f('__version__'), f('hip') and 'hip', f('cuda') and 'cuda')\n";

void doctor_python(doctor *d) {
    char line[256], version[64] = "", build[16] = "";
    char *argv[] = {(char *)"python3", (char *)"-c", (char *)torch_program, nullptr};
    if (!first_line(argv, line, sizeof line) || sscanf(line, "%63s %15s", version, build) < 1) {
        doctor_add(d, DOCTOR_FACT, "pytorch", "PyTorch", "", "not in python3's path");
        return;
    }
    const bool is_hip = strcmp(build, "hip") == 0, is_cuda = strcmp(build, "cuda") == 0;
    if (d->num_amd && !is_hip)
        doctor_add(
            d, DOCTOR_TROUBLE, "wrong-pytorch", "PyTorch",
            "install PyTorch's wheel for ROCm: pip install torch --index-url with rocm in it",
            "%s is built for %s, and the card is AMD's", version, is_cuda ? "CUDA" : "the CPU");
    else if (d->num_nvidia && !is_cuda)
        doctor_add(
            d, DOCTOR_TROUBLE, "wrong-pytorch", "PyTorch", "install PyTorch's wheel for CUDA",
            "%s is built for %s, and the card is NVIDIA's", version, is_hip ? "ROCm" : "the CPU");
    else
        doctor_add(d, DOCTOR_FACT, "pytorch", "PyTorch", "", "%s, for %s", version,
                   is_hip    ? "ROCm"
                   : is_cuda ? "CUDA"
                             : "the CPU");
}

// ---- the JIT

static bool is_good_clang(const char *name, char *line, size_t room) {
    char *argv[] = {(char *)name, (char *)"--version", nullptr};
    const char *version = first_line(argv, line, room) ? strstr(line, "version ") : nullptr;
    return version && atoi(version + strlen("version ")) >= 22;
}

/** Goes the JIT's way, which docs/env.md tells under QUERN_CLANG. */
static bool find_clang(char *line, size_t room) {
    static const char *const names[] = {"clang-22", "clang-23", "clang-24", "clang-25", "clang"};
    const char *chosen = getenv("QUERN_CLANG");
    const char *const folders[] = {getenv("ROCM_PATH"), getenv("HIP_PATH"), "/opt/rocm",
                                   "/opt/rocm-*"};
    bool is_found = false;
    if (chosen && *chosen)
        return is_good_clang(chosen, line, room);
    for (size_t i = 0; i < sizeof names / sizeof *names && !is_found; i++)
        is_found = is_good_clang(names[i], line, room);
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !is_found; i++) {
        char pattern[512];
        glob_t found = {};
        if (!folders[i] || !*folders[i])
            continue;
        snprintf(pattern, sizeof pattern, "%s/llvm/bin/clang", folders[i]);
        if (glob(pattern, 0, nullptr, &found) == 0)
            for (size_t j = 0; j < found.gl_pathc && !is_found; j++)
                is_found = is_good_clang(found.gl_pathv[j], line, room);
        globfree(&found);
    }
    return is_found;
}

static void look_at_cache(doctor *d) {
    char path[512];
    struct stat info;
    if (qn_cache_path(path, sizeof path) != QN_OK)
        doctor_add(d, DOCTOR_NOTE, "no-cache", "the cache", "set QUERN_CACHE_DIR or HOME", "%s",
                   qn_last_error());
    else if (stat(path, &info) == 0 && access(path, W_OK) != 0)
        doctor_add(d, DOCTOR_NOTE, "cache-not-writable", path,
                   "chown it to yourself, or set QUERN_CACHE_DIR",
                   "what is compiled cannot be kept: %s", strerror(errno));
    else
        doctor_add(d, DOCTOR_FACT, "cache", path, "", "for compiled kernels");
}

void doctor_jit(doctor *d) {
    char line[256];
    if (find_clang(line, sizeof line))
        doctor_add(d, DOCTOR_FACT, "clang", "clang", "", "%s", line);
    else
        doctor_add(d, DOCTOR_NOTE, "no-clang", "clang",
                   "install clang 22 or later, or set QUERN_CLANG",
                   "none of version 22 or later: kernels that are not built in cannot be compiled");
    look_at_cache(d);
}
