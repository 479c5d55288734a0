// SPDX-License-Identifier: Apache-2.0
// Cards on the PCI bus, the kernel's drivers for them, and their device nodes.
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { AMD = 0x1002, NVIDIA = 0x10de };

static long hex_of(const doctor *d, const char *folder, const char *name) {
    char path[512], line[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return doctor_line(d, path, line, sizeof line) ? strtol(line, nullptr, 16) : 0;
}

/** Calls `each` with every path that a pattern below the root stands for, without the root. */
static void each_path(const doctor *d, const char *pattern, void (*each)(doctor *, const char *),
                      doctor *to) {
    char full[512];
    glob_t found = {};
    if (glob(doctor_path(d, pattern, full, sizeof full), 0, nullptr, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            each(to, found.gl_pathv[i] + strlen(d->root));
    globfree(&found);
}

// ---- the bus

static void look_at_card(doctor *d, const char *folder) {
    enum { DISPLAY = 0x03, ACCELERATOR = 0x12 };
    const long class = hex_of(d, folder, "class") >> 16, vendor = hex_of(d, folder, "vendor");
    if ((class != DISPLAY && class != ACCELERATOR) || (vendor != AMD && vendor != NVIDIA))
        return;
    char driver[512], target[256] = "";
    snprintf(driver, sizeof driver, "%s%s/driver", d->root, folder);
    const ssize_t n = readlink(driver, target, sizeof target - 1);
    const char *name = n > 0 ? strrchr(target, '/') : nullptr;
    name = name ? name + 1 : "";
    const char *wanted = vendor == AMD ? "amdgpu" : "nvidia";
    *(vendor == AMD ? &d->num_amd : &d->num_nvidia) += 1;
    if (strcmp(name, wanted) == 0)
        doctor_add(d, DOCTOR_FACT, "card", strrchr(folder, '/') + 1, "", "%s card %04lx, driver %s",
                   vendor == AMD ? "AMD" : "NVIDIA", hex_of(d, folder, "device"), name);
    else
        doctor_add(d, DOCTOR_TROUBLE, "no-kernel-driver", strrchr(folder, '/') + 1,
                   vendor == AMD
                       ? "sudo modprobe amdgpu; sudo dmesg | grep amdgpu tells why it failed"
                       : "install NVIDIA's driver, then: sudo modprobe nvidia",
                   "the card has %s%s in place of the driver %s",
                   *name ? "the driver " : "no driver", name, wanted);
}

// ---- nodes

/** Writes the name of the group that a file belongs to. */
static void group_of(const struct stat *info, char *name, size_t room) {
    const struct group *group = getgrgid(info->st_gid);
    if (group)
        snprintf(name, room, "%s", group->gr_name);
    else
        snprintf(name, room, "%u", info->st_gid);
}

/** Returns whether the user is entered in a group that this session does not have yet. */
static bool is_member(const char *group_name) {
    const struct group *group = getgrnam(group_name);
    const struct passwd *user = getpwuid(getuid());
    for (char **name = group ? group->gr_mem : nullptr; user && name && *name; name++)
        if (strcmp(*name, user->pw_name) == 0)
            return true;
    return false;
}

static void look_at_node(doctor *d, const char *path) {
    char full[512], group[64], remedy[256];
    struct stat info;
    doctor_path(d, path, full, sizeof full);
    if (stat(full, &info) != 0)
        return;
    if (access(full, R_OK | W_OK) == 0) {
        doctor_add(d, DOCTOR_FACT, "node", path, "", "may be read and written");
        return;
    }
    group_of(&info, group, sizeof group);
    if (is_member(group))
        snprintf(remedy, sizeof remedy,
                 "log out and in again: this session began before you joined %s", group);
    else
        snprintf(remedy, sizeof remedy,
                 "sudo usermod -aG %s $USER, then log in again; in a container: --group-add %u",
                 group, info.st_gid);
    doctor_add(d, DOCTOR_TROUBLE, "no-permission", path, remedy,
               "you may not read and write it (%s); it belongs to the group %s", strerror(errno),
               group);
}

static void look_at_kfd(doctor *d) {
    char full[512];
    if (access(doctor_path(d, "/dev/kfd", full, sizeof full), F_OK) == 0)
        look_at_node(d, "/dev/kfd");
    else
        doctor_add(
            d, DOCTOR_TROUBLE, "no-kfd", "/dev/kfd",
            "in a container: docker run --device /dev/kfd --device /dev/dri; else load amdgpu",
            "not there, though there is an AMD card");
}

// ---- what the kernel says of AMD's cards

static void look_at_topology(doctor *d, const char *path) {
    char full[512], line[128];
    long version = 0;
    FILE *file = fopen(doctor_path(d, path, full, sizeof full), "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "gfx_target_version %ld", &version) == 1)
            break;
    if (file)
        fclose(file);
    if (version) // 90402: gfx942; 0 is a CPU
        doctor_add(d, DOCTOR_FACT, "architecture", "the kernel's topology", "", "gfx%ld%ld%lx",
                   version / 10000, version / 100 % 100, version % 100);
}

void doctor_cards(doctor *d) {
    each_path(d, "/sys/bus/pci/devices/*", look_at_card, d);
    if (!d->num_amd && !d->num_nvidia)
        doctor_add(d, DOCTOR_NOTE, "no-card", "the PCI bus",
                   "quern runs on the CPU and on simulated GPUs (quern devices)",
                   "no AMD or NVIDIA card");
    if (!d->num_amd)
        return;
    each_path(d, "/sys/class/kfd/kfd/topology/nodes/*/properties", look_at_topology, d);
    look_at_kfd(d);
    each_path(d, "/dev/dri/renderD*", look_at_node, d);
}
