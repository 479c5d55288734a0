// SPDX-License-Identifier: Apache-2.0
// Reports the faults of a process's launches: text on standard error, lines in a file, a sum at
// exit.
#include "runtime.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The counts of this process; the runtime's lock guards them.
static uint64_t num_faults;
static char **kernels; // that have faults
static size_t num_kernels;

/** Appends whole lines. Each line is one write, so that lines of several processes do not mix. */
static bool append_lines(int file, const char *text) {
    while (*text) {
        const size_t length = strcspn(text, "\n") + 1;
        if (write(file, text, length) != (ssize_t)length)
            return false;
        text += length;
    }
    return true;
}

static void write_json(const sim_dispatch *d, const char *path) {
    char *text = sim_faults_json(d);
    const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (!text || file < 0 || !append_lines(file, text))
        sim_hip_report("QUERN_SIM", "report=%s: cannot write: %s", path, strerror(errno));
    if (file >= 0)
        close(file);
    free(text);
}

static bool is_known(const char *kernel) {
    for (size_t i = 0; i < num_kernels; i++)
        if (strcmp(kernels[i], kernel) == 0)
            return true;
    return false;
}

/** Counts a launch's faults; without memory its kernel is not counted. */
static void count(const sim_dispatch *d) {
    pthread_mutex_lock(&sim_hip.lock);
    num_faults += sim_faults_failing(&d->faults);
    if (!is_known(d->kernel->name)) {
        char **grown = realloc(kernels, (num_kernels + 1) * sizeof *grown);
        kernels = grown ? grown : kernels;
        if (grown && (kernels[num_kernels] = strdup(d->kernel->name)))
            num_kernels++;
    }
    pthread_mutex_unlock(&sim_hip.lock);
}

/** Returns the kind of the first fault that fails the launch; OVERREAD if no fault does. */
static sim_fault_kind first_failing(const sim_faults *faults) {
    for (uint32_t i = 0; i < faults->count; i++)
        if (faults->list[i].kind != SIM_FAULT_OVERREAD)
            return faults->list[i].kind;
    return faults->are_lost ? SIM_FAULT_RESOURCES : SIM_FAULT_OVERREAD;
}

hipError_t sim_hip_report_faults(const sim_dispatch *d) {
    if (!d->faults.count && !d->faults.are_lost)
        return hipSuccess; // done, or stopped because the process ends
    char *text = d->faults.count ? sim_faults_text(d) : nullptr;
    fputs(text ? text : "quernsim: a kernel has faults, but there is no memory to tell of them\n",
          stderr);
    free(text);
    char path[sizeof sim_hip.options.report];
    pthread_mutex_lock(&sim_hip.lock);
    memcpy(path, sim_hip.options.report, sizeof path);
    pthread_mutex_unlock(&sim_hip.lock);
    if (*path)
        write_json(d, path);
    sim_fault_kind kind = first_failing(&d->faults);
    if (kind == SIM_FAULT_OVERREAD)
        return hipSuccess;
    count(d);
    if (kind == SIM_FAULT_RESOURCES) // the host lacks memory
        return hipErrorOutOfMemory;
    return kind == SIM_FAULT_BOUNDS || kind == SIM_FAULT_FREED ? hipErrorIllegalAddress
                                                               : hipErrorLaunchFailure;
}

void sim_hip_fork_faults(void) {
    num_faults = 0;
}

void sim_hip_stay_loaded(void) {
    Dl_info self;
    if (dladdr((void *)&sim_hip, &self))
        dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

static void forget_kernels(void) {
    for (size_t i = 0; i < num_kernels; i++)
        free(kernels[i]);
    free(kernels);
    kernels = nullptr;
    num_kernels = 0;
}

void sim_hip_finish_faults(void) {
    if (!num_faults)
        return;
    fprintf(stderr, "quernsim: %llu %s in %zu %s\n", (unsigned long long)num_faults,
            num_faults == 1 ? "fault" : "faults", num_kernels,
            num_kernels == 1 ? "kernel" : "kernels");
    forget_kernels();
    num_faults = 0;
    if (sim_hip.options.errorcode) {
        fflush(nullptr);
        _exit((int)sim_hip.options.errorcode);
    }
}
