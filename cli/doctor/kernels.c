// SPDX-License-Identifier: Apache-2.0
// Which kernels a device has, op by op.
#include "doctor.h"

#include <stdlib.h>
#include <string.h>

/** The kernels of one op that a device has, as lists of names without the op's; and how many ops of
 *  the device have kernels of which kind. */
typedef struct tally {
    json_t *ops; // [{"device", "op", "tuned": ["fp8_decode"], "general": ["any"], "missing": []}]
    const char *device;
    json_t *op; // the last of `ops`, not owned
} tally;

static void note_kernel(void *context, const qn_kernel *kernel) {
    tally *t = context;
    if (!t->op || strcmp(json_string_value(json_object_get(t->op, "op")), kernel->op) != 0) {
        t->op = cli_json_pack("{s:s, s:s, s:[], s:[], s:[]}", "device", t->device, "op", kernel->op,
                              "tuned", "general", "missing");
        cli_json_add(t->ops, t->op);
    }
    const char *list = kernel->reason ? "missing" : kernel->is_general ? "general" : "tuned";
    cli_json_add(json_object_get(t->op, list), cli_json_text(strchr(kernel->name, '.') + 1));
}

static size_t length_of(const json_t *op, const char *list) {
    return json_array_size(json_object_get(op, list));
}

/** Writes the names of the ops that have only general kernels, or none, to buf; "" if none has. */
static void names_of(const json_t *ops, bool has_general, char *buf, size_t room) {
    size_t i, used = 0;
    json_t *op;
    *buf = 0;
    json_array_foreach(ops, i, op) {
        if (length_of(op, "tuned") || (length_of(op, "general") > 0) != has_general)
            continue;
        const int n = snprintf(buf + used, room - used, "%s%s", used ? " " : "",
                               json_string_value(json_object_get(op, "op")));
        used = used + (size_t)n < room ? used + (size_t)n : room - 1;
    }
}

static void sum_up(doctor *d, const qn_device_info *info, const json_t *ops) {
    char general[256], none[256], subject[128];
    size_t i, kernels = 0, tuned = 0;
    json_t *op;
    json_array_foreach(ops, i, op) {
        tuned += length_of(op, "tuned") > 0;
        kernels += length_of(op, "tuned") + length_of(op, "general");
    }
    names_of(ops, true, general, sizeof general);
    names_of(ops, false, none, sizeof none);
    snprintf(subject, sizeof subject, "%s, %s", info->spec, info->arch);
    doctor_add(d, DOCTOR_FACT, "kernels", subject, "",
               "%zu kernels; %zu of %zu ops have tuned ones%s%s%s%s", kernels, tuned,
               json_array_size(ops), *general ? "; general ones alone: " : "", general,
               *none ? "; none: " : "", none);
}

static qn_status look_at_device(doctor *d, const char *spec) {
    qn_device *device = nullptr;
    qn_device_info info = {.struct_size = sizeof info};
    tally t = {.ops = json_array(), .device = spec};
    qn_status st;
    CLI_TRY_OUT(qn_device_open(&device, spec));
    CLI_TRY_OUT(qn_device_get_info(device, &info));
    CLI_TRY_OUT(qn_kernel_list(device, nullptr, note_kernel, &t));
    sum_up(d, &info, t.ops);
    json_array_extend(d->kernels, t.ops);
out:
    qn_device_close(device);
    json_decref(t.ops);
    return st;
}

qn_status doctor_kernels(doctor *d, const char *spec) {
    enum { MAX = 64 };
    qn_device_info infos[MAX];
    int32_t count = MAX;
    if (spec) {
        const qn_status st = look_at_device(d, spec);
        return st == QN_OK ? QN_OK : cli_fail_lib(st, spec);
    }
    for (int i = 0; i < MAX; i++)
        infos[i].struct_size = sizeof *infos;
    if (qn_device_list(infos, &count) != QN_OK)
        return QN_OK; // doctor_drivers says why
    for (int32_t i = 0; i < count && i < MAX; i++)
        if (!infos[i].is_modelled)
            look_at_device(d, infos[i].spec);
    return QN_OK;
}

/** Writes a list's names to a cell. */
static void add_names(cli_table *table, const json_t *op, const char *list) {
    char *text = cli_text("%s", "");
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(op, list), i, name) {
        char *longer = cli_text("%s%s%s", text, i ? " " : "", json_string_value(name));
        free(text);
        text = longer;
    }
    cli_table_add(table, "%s", text);
    free(text);
}

void doctor_print_kernels(const doctor *d) {
    cli_table table;
    size_t i;
    json_t *op;
    if (!json_array_size(d->kernels))
        return;
    cli_table_init(&table, 4, (const char *const[]){"device", "op", "general", "tuned"});
    json_array_foreach(d->kernels, i, op) {
        cli_table_add(&table, "%s", json_string_value(json_object_get(op, "device")));
        cli_table_add(&table, "%s", json_string_value(json_object_get(op, "op")));
        add_names(&table, op, "general");
        add_names(&table, op, "tuned");
    }
    cli_table_print(&table, stdout);
    putchar('\n');
}
