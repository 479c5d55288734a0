// SPDX-License-Identifier: Apache-2.0
// Runs probes and compares what they give with a chip file's entries.
#include "probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const qni_probe probes[] = {
#define QN_PROBE(probe_name, in_unit, model, about_it, ...)                                        \
    {.info.name = #probe_name, .info.unit = in_unit, model, .info.about = about_it, __VA_ARGS__},
#define QN_IMAGE(...)
#include "probes.def"
#undef QN_PROBE
#undef QN_IMAGE
};
enum { NUM_PROBES = sizeof probes / sizeof *probes, RUNS = 9, MAX_RUNS = 99 };

const qn_probe_info *qn_probe_infos(int32_t *count) {
    static qn_probe_info infos[NUM_PROBES];
    for (size_t i = 0; i < NUM_PROBES; i++)
        infos[i] = probes[i].info;
    *count = NUM_PROBES;
    return infos;
}

bool qni_probe_is_cdna4(const qn_device *device) {
    return qni_has(device, QNI_F(MFMA_FP8_OCP));
}

// ---- the model

double qni_probe_given(const qni_probe_run *run, const char *entry) {
    return run->options->given ? run->options->given(run->context, entry) : NAN;
}

uint32_t qni_probe_xcds(const qni_probe_run *run, uint32_t groups) {
    const double given = qni_probe_given(run, "num_xccs");
    const uint32_t xcds = given >= 1 ? (uint32_t)given : 1;
    return groups % xcds == 0 ? xcds : 1;
}

/** Returns what the model gives for an entry's value of 1, if `entry` is not null, else for the
 *  given chip. */
static double model_of(const qni_probe_run *run, const qni_probe *probe, const char *entry) {
    char names[128], *rest = names;
    const double cdna4 = probe->factor[1] != 0 ? probe->factor[1] : probe->factor[0];
    double product = qni_probe_is_cdna4(run->device) ? cdna4 : probe->factor[0];
    snprintf(names, sizeof names, "%s", probe->entries);
    for (const char *name; (name = strtok_r(rest, " ", &rest));) {
        const bool divides = *name == '/';
        name += divides;
        const double value = entry && strcmp(name, entry) == 0 ? 1 : qni_probe_given(run, name);
        product = divides ? product / value : product * value;
    }
    return product;
}

// ---- device memory and launches

qn_status qni_probe_alloc(qni_probe_run *run, void **out, int64_t bytes, bool is_clear) {
    const qn_status st = qn_malloc(run->device, out, bytes);
    if (st != QN_OK || !is_clear)
        return st;
    return run->device->backend->fill(run->stream, *out, 0, bytes);
}

qn_status qni_probe_put(qni_probe_run *run, void *to, const void *from, int64_t bytes) {
    QN_TRY(run->device->backend->copy(run->stream, to, from, bytes, QNI_COPY_TO_DEVICE));
    return qn_stream_sync(run->stream);
}

qn_status qni_probe_take(qni_probe_run *run, void *to, int64_t bytes) {
    QN_TRY(run->device->backend->copy(run->stream, to, run->out, bytes, QNI_COPY_TO_HOST));
    return qn_stream_sync(run->stream);
}

qn_status qni_probe_launch(qni_probe_run *run, const char *image, const char *entry,
                           uint32_t groups, uint32_t threads, const void *args, size_t args_bytes) {
    const qni_kernel_ref kernel = {.image = image, .entry = entry};
    return qni_launch(run->stream, &kernel, (const uint32_t[3]){groups, 1, 1}, threads, args,
                      args_bytes);
}

// ---- a probe

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static qn_status measure(qni_probe_run *run, const qni_probe *probe, double *median) {
    double values[MAX_RUNS];
    const int given = run->options->runs, usual = run->device->info.is_modelled ? 1 : RUNS;
    const int runs = given < 1 ? usual : given > MAX_RUNS ? MAX_RUNS : given;
    for (int i = 0; i < runs; i++) {
        *run->detail = 0;
        QN_TRY(probe->run(run, probe, &values[i]));
    }
    qsort(values, (size_t)runs, sizeof *values, by_value);
    *median = values[runs / 2];
    return QN_OK;
}

static qn_status run_probe(qni_probe_run *run, const qni_probe *probe, qn_probe_fn report) {
    const unsigned generation = qni_probe_is_cdna4(run->device) ? QNI_CDNA4 : QNI_CDNA3;
    qn_probe_result result = {.info = &probe->info,
                              .value = NAN,
                              .model = model_of(run, probe, nullptr),
                              .entry_value = NAN,
                              .detail = run->detail};
    *run->detail = 0;
    if (probe->generations && !(probe->generations & generation))
        result.reason = "the device has no such instruction";
    else
        QN_TRY(measure(run, probe, &result.value));
    if (probe->info.entry)
        result.entry_value = result.value / model_of(run, probe, probe->info.entry);
    report(run->context, &result);
    return QN_OK;
}

static qn_status run_probes(qni_probe_run *run, const char *name, qn_probe_fn report) {
    bool is_known = false;
    for (size_t i = 0; i < NUM_PROBES; i++)
        if (!name || strcmp(name, probes[i].info.name) == 0) {
            is_known = true;
            QN_TRY(run_probe(run, &probes[i], report));
        }
    return is_known ? QN_OK : QN_FAIL(QN_E_NOT_FOUND, "qn_probe: no probe is named %s", name);
}

/** Checks that the device is a card of CDNA3 or CDNA4, whose FP8 products tell them from all
 *  others. */
static qn_status check_device(const qn_device *device) {
    if (!qni_has(device, QNI_F(MFMA_FP8_FNUZ)) && !qni_has(device, QNI_F(MFMA_FP8_OCP)))
        return QN_FAIL(QN_E_UNSUPPORTED, "qn_probe: %s has no probes; accepted: gfx942, gfx950",
                       device->info.spec);
    if (!device->info.has_clock)
        return QN_FAIL(QN_E_UNSUPPORTED, "qn_probe: %s has no clock: QUERN_SIM has clock=off",
                       device->info.spec);
    return QN_OK;
}

qn_status qn_probe(qn_device *device, const char *name, const qn_probe_options *options,
                   qn_probe_fn report, void *context) {
    const qn_probe_options none = {.struct_size = sizeof none};
    if (!device || !report)
        return QN_FAIL(QN_E_INVALID, "qn_probe: device or report is null");
    if (options)
        QN_TRY(QNI_CHECK_STRUCT("qn_probe", "options", qn_probe_options, options));
    QN_TRY(check_device(device));
    qni_probe_run run = {
        .device = device, .options = options ? options : &none, .context = context};
    qn_status st;
    QN_TRY_OUT(qn_stream_create(&run.stream, device));
    QN_TRY_OUT(qn_event_create(&run.start, device));
    QN_TRY_OUT(qn_event_create(&run.end, device));
    QN_TRY_OUT(qni_probe_alloc(&run, &run.out, QNI_PROBE_OUT_BYTES, true));
    QN_TRY_OUT(run_probes(&run, name, report));
out:
    qn_free(device, run.out);
    qn_event_destroy(run.end);
    qn_event_destroy(run.start);
    qn_stream_destroy(run.stream);
    return st;
}
