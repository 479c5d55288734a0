// SPDX-License-Identifier: Apache-2.0
// A device with a stream, its properties as JSON, and tensors on it.
#include "cli.h"

#include <string.h>

qn_status cli_fail_lib(qn_status status, const char *what) {
    return cli_fail(status, "%s: %s", what, qn_last_error());
}

/** Adds to the message which device of this machine a mistyped spec may have meant. */
static qn_status fail_spec(qn_status status, const char *what, const char *spec) {
    enum { MOST = 64 };
    static qn_device_info infos[MOST];
    char guess[CLI_GUESS_ROOM], accepted[MOST * sizeof infos->spec] = "auto";
    int32_t count = MOST;
    const qn_status st = cli_fail_lib(status, what);
    infos[0].struct_size = sizeof *infos;
    if (!spec || status == QN_E_MEMORY || qn_device_list(infos, &count) != QN_OK)
        return st;
    for (int32_t i = 0; i < count && i < MOST; i++) {
        const size_t used = strlen(accepted);
        snprintf(accepted + used, sizeof accepted - used, " %s", infos[i].spec);
    }
    cli_guess(spec, strlen(spec), accepted, guess, sizeof guess);
    return *guess ? cli_fail(status, "%s%s", cli_error(), guess) : st;
}

qn_status cli_device_open(cli_device *out, const char *spec) {
    *out = (cli_device){.info.struct_size = sizeof out->info};
    char what[96];
    snprintf(what, sizeof what, "device %s", spec ? spec : "auto");
    qn_status st;
    if ((st = qn_device_open(&out->device, spec)) != QN_OK ||
        (st = qn_device_get_info(out->device, &out->info)) != QN_OK ||
        (st = qn_stream_create(&out->stream, out->device)) != QN_OK) {
        st = fail_spec(st, what, spec);
        cli_device_close(out);
    }
    return st;
}

/** Warns once that the CPU had fewer threads than when it was opened, as figures and times are of
 *  these threads. */
static void warn_of_few_threads(const cli_device *device) {
    static bool has_warned;
    qn_device_info now = {.struct_size = sizeof now};
    if (has_warned || !device->device || qn_device_get_info(device->device, &now) != QN_OK ||
        now.num_compute_units >= device->info.num_compute_units)
        return;
    has_warned = true;
    fprintf(stderr,
            "quern: warning: the CPU worked with %d threads in place of %d: a limit of the system "
            "(ulimit -u, -v) allows no more\n",
            now.num_compute_units, device->info.num_compute_units);
}

void cli_device_close(cli_device *device) {
    warn_of_few_threads(device);
    qn_stream_destroy(device->stream);
    qn_device_close(device->device);
    *device = (cli_device){0};
}

const char *cli_times(const qn_device_info *info) {
    return !info->has_clock ? "none" : info->is_modelled ? "modelled" : "measured";
}

json_t *cli_device_json(const qn_device_info *info) {
    return cli_json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:s}", "spec", info->spec,
                         "name", info->name, "arch", info->arch, "driver", info->driver,
                         "memory_bytes", (json_int_t)info->memory_bytes, "lds_bytes",
                         (json_int_t)info->lds_bytes, "compute_units", info->num_compute_units,
                         "wave_size", info->wave_size, "clock_khz", info->clock_khz, "times",
                         cli_times(info));
}

qn_status cli_tensor_make(cli_tensor *out, cli_device *device, DLDataType dtype, int ndim,
                          const int64_t *shape) {
    int64_t bytes = dtype.bits / 8;
    for (int i = 0; i < ndim; i++)
        bytes *= out->shape[i] = shape[i];
    out->t = (DLTensor){
        .device = qn_device_id(device->device), .ndim = ndim, .dtype = dtype, .shape = out->shape};
    return qn_malloc(device->device, &out->t.data, bytes);
}

void cli_tensor_free(cli_tensor *tensor, cli_device *device) {
    qn_free(device->device, tensor->t.data);
    *tensor = (cli_tensor){0};
}

qn_status cli_tensor_load(cli_tensor *to, cli_device *device, const void *from) {
    DLTensor source = to->t;
    source.data = (void *)from;
    source.device = (DLDevice){kDLCPU, 0};
    return qn_copy(device->stream, &to->t, &source);
}

qn_status cli_tensor_store(void *to, cli_device *device, const cli_tensor *from) {
    DLTensor target = from->t;
    target.data = to;
    target.device = (DLDevice){kDLCPU, 0};
    const qn_status st = qn_copy(device->stream, &target, &from->t);
    return st == QN_OK ? qn_stream_sync(device->stream) : st;
}
