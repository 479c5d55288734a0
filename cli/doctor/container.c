// SPDX-License-Identifier: Apache-2.0
// A container's limits.
#include "doctor.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool is_container(void) {
    return access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0;
}

/** PyTorch's loaders and collective libraries of several GPUs share memory there. */
static void look_at_shared_memory(doctor *d) {
    constexpr uint64_t ENOUGH = UINT64_C(1) << 30;
    struct statvfs info;
    char size[32];
    if (statvfs("/dev/shm", &info) != 0) {
        doctor_add(d, DOCTOR_NOTE, "no-shared-memory", "/dev/shm", "mount a tmpfs on /dev/shm",
                   "not there: programs of several processes cannot share memory");
        return;
    }
    const uint64_t bytes = (uint64_t)info.f_blocks * info.f_frsize;
    cli_bytes_text((int64_t)bytes, size, sizeof size);
    if (bytes < ENOUGH)
        doctor_add(d, DOCTOR_NOTE, "small-shared-memory", "/dev/shm",
                   "docker run --shm-size 16g, or --ipc host",
                   "%s: workers of PyTorch and several GPUs need more", size);
    else
        doctor_add(d, DOCTOR_FACT, "shared-memory", "/dev/shm", "", "%s", size);
}

static void look_at_locked_memory(doctor *d) {
    constexpr rlim_t ENOUGH = 64 << 20;
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur < ENOUGH && d->num_amd)
        doctor_add(d, DOCTOR_NOTE, "small-memlock", "ulimit -l",
                   "docker run --ulimit memlock=-1; else a line in /etc/security/limits.conf",
                   "%llu KiB of memory may be locked: pinned copies may fail",
                   (unsigned long long)limit.rlim_cur >> 10);
}

void doctor_container(doctor *d) {
    if (is_container())
        doctor_add(d, DOCTOR_FACT, "container", "this system", "", "a container");
    look_at_shared_memory(d);
    look_at_locked_memory(d);
}
