// SPDX-License-Identifier: Apache-2.0
// Devices: specs, the list of what can be opened, one counted handle for each open device.
#include "../runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
static qn_device
    *open_devices; // under devices_lock, like every device's reference count going to zero

/** The parts of a spec, and the spec in its canonical form. */
typedef struct parsed_spec {
    qn_status (*open)(qn_device *device, const char *arg);
    char text[48];   // "sim:gfx942:2"
    const char *arg; // in text: "gfx942:2"
} parsed_spec;

static qn_status bad_spec(const char *spec, const char *fault) {
    return QN_FAIL(
        QN_E_INVALID,
        "device: \"%.64s\": %s; accepted: cpu, hip:N, cuda:N, sim:ARCH, sim:ARCH:N, auto", spec,
        fault);
}

/** Reads a decimal number of at most four digits, without sign or leading zeros; -1 if text is no
 *  such number. */
static int parse_index(const char *text) {
    const size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 4 || text[digits] || (digits > 1 && *text == '0'))
        return -1;
    return atoi(text);
}

/** Parses hip:N or cuda:N; N is 0 if it is left out. */
static qn_status parse_gpu(parsed_spec *out, const char *spec, const char *kind, const char *arg) {
    const int index = *arg ? parse_index(arg) : 0;
    if (index < 0)
        return bad_spec(spec, "what follows the colon must be a number from 0");
    snprintf(out->text, sizeof out->text, "%s:%d", kind, index);
    out->open = *kind == 'h' ? qni_hip_open : qni_cuda_open;
    return QN_OK;
}

static qn_status parse_sim(parsed_spec *out, const char *spec, const char *arg) {
    const size_t length = strcspn(arg, ":");
    const qni_target *target = qni_target_find(arg, length);
    int ordinal = 1;
    if (!target || qni_target_is_ptx(target)) {
        char known[256] = "no such architecture; there are";
        for (int t = 0; t < QNI_NUM_TARGETS && !qni_target_is_ptx(&qni_targets[t]); t++)
            snprintf(known + strlen(known), sizeof known - strlen(known), " %s",
                     qni_targets[t].name);
        return bad_spec(spec, known);
    }
    if (arg[length] == ':')
        ordinal = parse_index(arg + length + 1);
    if (ordinal < 1 || ordinal > QNI_MAX_SIM_DEVICES) {
        char range[64];
        snprintf(range, sizeof range, "which device of its kind must be a number from 1 to %d",
                 QNI_MAX_SIM_DEVICES);
        return bad_spec(spec, range);
    }
    if (ordinal == 1)
        snprintf(out->text, sizeof out->text, "sim:%s", target->name);
    else
        snprintf(out->text, sizeof out->text, "sim:%s:%d", target->name, ordinal);
    out->open = qni_sim_open;
    return QN_OK;
}

static qn_status parse_spec(parsed_spec *out, const char *spec) {
    size_t length = strcspn(spec, ":");
    const char *arg = spec[length] ? spec + length + 1 : "";
    qn_status st;
    if (length == 3 && strncmp(spec, "cpu", 3) == 0) {
        if (spec[length])
            return bad_spec(spec, "there is one CPU device");
        snprintf(out->text, sizeof out->text, "cpu");
        out->open = qni_cpu_open;
        st = QN_OK;
    } else if (length == 3 && strncmp(spec, "hip", 3) == 0) {
        st = parse_gpu(out, spec, "hip", arg);
    } else if (length == 4 && strncmp(spec, "cuda", 4) == 0) {
        st = parse_gpu(out, spec, "cuda", arg);
    } else if (length == 3 && strncmp(spec, "sim", 3) == 0) {
        st = parse_sim(out, spec, arg);
    } else {
        return bad_spec(spec, "no such kind of device");
    }
    length = strcspn(out->text, ":");
    out->arg = out->text + length + (out->text[length] == ':');
    return st;
}

static void close_last(qn_device *device) {
    qni_kernels_destroy(device);
    device->backend->close(device);
    free(device);
}

static qn_status open_new(qn_device **out, const parsed_spec *spec) {
    qn_device *device = calloc(1, sizeof *device);
    if (!device)
        return QN_FAIL(QN_E_MEMORY, "device: out of memory");
    device->info.struct_size = sizeof device->info;
    qn_status st = spec->open(device, spec->arg);
    if (st != QN_OK) {
        free(device);
        return st;
    }
    if (device->target && (st = qni_kernels_create(device)) != QN_OK) {
        close_last(device);
        return st;
    }
    atomic_init(&device->references, 1);
    device->next = open_devices;
    open_devices = device;
    *out = device;
    return QN_OK;
}

static qn_status open_spec(qn_device **out, const char *spec) {
    parsed_spec parsed;
    qn_status st = parse_spec(&parsed, spec);
    if (st != QN_OK)
        return st;
    pthread_mutex_lock(&devices_lock);
    qn_device *found = open_devices;
    while (found && strcmp(found->info.spec, parsed.text) != 0)
        found = found->next;
    if (found) {
        atomic_fetch_add(&found->references, 1);
        *out = found;
    } else {
        st = open_new(out, &parsed);
    }
    pthread_mutex_unlock(&devices_lock);
    return st;
}

/** Opens the first real GPU, else the CPU. The log says why it is not the GPU, so that a fallback
 *  is never silent. */
static qn_status open_auto(qn_device **out) {
    const char *wanted = qni_env_get()->device;
    if (*wanted && strcmp(wanted, "auto") != 0)
        return open_spec(out, wanted);
    static const char *const gpus[][2] = {{"hip", "hip:0"}, {"cuda", "cuda:0"}};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        if (qni_is_backend_disabled(gpus[i][0]))
            continue;
        const qn_status st = open_spec(out, gpus[i][1]);
        if (st == QN_OK || st == QN_E_IO) // QN_E_IO: it is not known whether there is a driver
            return st;
        qni_log(QNI_LOG_KERNEL, "device auto: not %s: %s", gpus[i][1], qn_last_error());
    }
    return open_spec(out, "cpu");
}

static qn_status check_environment(void) {
    if (qni_env_get()->lacks_memory)
        return QN_FAIL(QN_E_MEMORY, "environment: out of memory");
    if (*qni_env_get()->error)
        return QN_FAIL(QN_E_INVALID, "environment: %s", qni_env_get()->error);
    return qni_choice_check_environment();
}

qn_status qn_device_open(qn_device **out, const char *spec) {
    if (!out)
        return QN_FAIL(QN_E_INVALID, "device_open: out is null");
    const qn_status st = check_environment();
    if (st != QN_OK)
        return st;
    if (!spec || strcmp(spec, "auto") == 0)
        return open_auto(out);
    return open_spec(out, spec);
}

void qn_device_close(qn_device *device) {
    if (!device)
        return;
    pthread_mutex_lock(&devices_lock);
    if (atomic_fetch_sub(&device->references, 1) == 1) {
        qn_device **link = &open_devices;
        while (*link != device)
            link = &(*link)->next;
        *link = device->next;
        close_last(device);
    }
    pthread_mutex_unlock(&devices_lock);
}

/** Copies as much of the info as the caller's struct, which may be of another version, has room
 *  for. */
static void copy_info(qn_device_info *to, size_t room, const qn_device_info *from) {
    memcpy(to, from, room < sizeof *from ? room : sizeof *from);
    to->struct_size = room;
}

qn_status qn_device_get_info(const qn_device *device, qn_device_info *info) {
    if (!device)
        return QN_FAIL(QN_E_INVALID, "device_get_info: device is null");
    const qn_status st =
        QNI_CHECK_STRUCT_FROM("device_get_info", "info", qn_device_info, info, spec);
    if (st != QN_OK)
        return st;
    qn_device_info now = device->info;
    if (device->id.device_type == kDLCPU)
        now.num_compute_units = qni_num_threads(); // the system may have allowed fewer meanwhile
    copy_info(info, info->struct_size, &now);
    return QN_OK;
}

DLDevice qn_device_id(const qn_device *device) {
    return device ? device->id : (DLDevice){};
}

/** Where qn_device_list puts the devices that it finds. */
typedef struct device_list {
    char *infos; // null: only count
    size_t room; // of one info
    int32_t capacity, count;
    qn_status st; // not QN_OK: the host lacks memory, and the list is not complete
} device_list;

/** Opens a device to list it. Returns false if there is no such device. A device that cannot be
 *  used, such as a GPU whose memory is in use, is passed over. */
static bool list_one(device_list *list, const char *spec) {
    qn_device *device = nullptr;
    const qn_status st = open_spec(&device, spec);
    const bool is_hosts = strncmp(spec, "cpu", 3) == 0 || strncmp(spec, "sim:", 4) == 0;
    if (st == QN_E_IO || (st == QN_E_MEMORY && is_hosts))
        list->st = st;
    if (st != QN_OK)
        return st != QN_E_NOT_FOUND && list->st == QN_OK;
    if (list->infos && list->count < list->capacity)
        copy_info((qn_device_info *)(list->infos + (size_t)list->count * list->room), list->room,
                  &device->info);
    list->count++;
    qn_device_close(device);
    return true;
}

/** Lists the simulated devices of a target. The simulated GPU makes a first device of any
 *  architecture when asked; QUERN_SIM may ask for more. */
static void list_simulated(device_list *list, const qni_target *target) {
    char spec[48];
    pthread_mutex_lock(&devices_lock);
    const int count = qni_sim_count(target);
    pthread_mutex_unlock(&devices_lock);
    for (int n = 1; n == 1 || n <= count; n++) {
        snprintf(spec, sizeof spec, "sim:%s:%d", target->name, n);
        if (!list_one(list, spec))
            return;
    }
}

static void list_gpus(device_list *list, const char *kind) {
    char spec[48];
    int i = 0;
    if (qni_is_backend_disabled(kind))
        return;
    do
        snprintf(spec, sizeof spec, "%s:%d", kind, i++);
    while (i <= 64 && list_one(list, spec));
}

static void list_all_simulated(device_list *list) {
    if (qni_is_backend_disabled("sim"))
        return;
    for (int t = 0; t < QNI_NUM_TARGETS && !qni_target_is_ptx(&qni_targets[t]) && list->st == QN_OK;
         t++)
        list_simulated(list, &qni_targets[t]);
}

static void list_all(device_list *list) {
    // Simulated devices are made before any GPU is counted, because they are GPUs of hip as well if
    // the simulator stands in for the real driver.
    device_list made = {};
    list_all_simulated(&made);
    list->st = made.st;
    if (list->st == QN_OK)
        list_gpus(list, "hip");
    if (list->st == QN_OK)
        list_gpus(list, "cuda");
    if (list->st == QN_OK && !qni_is_backend_disabled("cpu"))
        list_one(list, "cpu");
    if (list->st == QN_OK)
        list_all_simulated(list);
}

qn_status qn_device_list(qn_device_info *infos, int32_t *count) {
    if (!count)
        return QN_FAIL(QN_E_INVALID, "device_list: count is null");
    qn_status st = check_environment();
    if (st != QN_OK)
        return st;
    device_list list = {.infos = (char *)infos, .capacity = infos ? *count : 0};
    if (list.capacity > 0) {
        st = QNI_CHECK_STRUCT_FROM("device_list", "info", qn_device_info, infos, spec);
        if (st != QN_OK)
            return st;
        list.room = infos->struct_size;
    }
    list_all(&list);
    if (list.st == QN_OK)
        *count = list.count;
    return list.st;
}
