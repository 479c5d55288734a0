// SPDX-License-Identifier: Apache-2.0
// A device with a stream, and its properties as JSON.
#include "cli.h"

qn_status cli_fail_lib(qn_status status, const char *what) {
    return cli_fail(status, "%s: %s", what, qn_last_error());
}

qn_status cli_device_open(cli_device *out, const char *spec) {
    *out = (cli_device){.info.struct_size = sizeof out->info};
    char what[96];
    snprintf(what, sizeof what, "device %s", spec ? spec : "auto");
    qn_status st;
    if ((st = qn_device_open(&out->device, spec)) != QN_OK ||
        (st = qn_device_get_info(out->device, &out->info)) != QN_OK ||
        (st = qn_stream_create(&out->stream, out->device)) != QN_OK) {
        st = cli_fail_lib(st, what);
        cli_device_close(out);
    }
    return st;
}

void cli_device_close(cli_device *device) {
    qn_stream_destroy(device->stream);
    qn_device_close(device->device);
    *device = (cli_device){0};
}

json_t *cli_device_json(const qn_device_info *info) {
    const char *times = info->is_modelled ? "modelled" : info->has_clock ? "measured" : "none";
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:s}", "spec", info->spec,
                     "name", info->name, "arch", info->arch, "driver", info->driver, "memory_bytes",
                     (json_int_t)info->memory_bytes, "lds_bytes", (json_int_t)info->lds_bytes,
                     "compute_units", info->num_compute_units, "wave_size", info->wave_size,
                     "clock_khz", info->clock_khz, "times", times);
}
