// SPDX-License-Identifier: Apache-2.0
// Loads a linear layer from a checkpoint and runs it on a device, with the public API alone.
#include "layer.h"

#include "../select.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

constexpr float weight_eps = 1e-10F, input_eps = 1e-4F; // the eps of quern quantize; DeepGEMM's

static int64_t blocks_of(int64_t count) {
    return (count + LAYER_BLOCK - 1) / LAYER_BLOCK;
}

static DLTensor matrix(void *data, DLDevice device, DLDataType dtype, int64_t shape[2]) {
    return (DLTensor){.data = data, .device = device, .ndim = 2, .dtype = dtype, .shape = shape};
}

static const DLDevice host = {kDLCPU, 0};
static const DLDataType f32 = {kDLFloat, 32, 1};

// ---- loading

/** Copies a tensor's bytes to an address that suits any dtype. */
static void *copy_data(const ckpt_shard *shard, const st_tensor *t) {
    void *copy = cli_alloc((size_t)(t->end - t->begin));
    memcpy(copy, ckpt_data(shard, t), (size_t)(t->end - t->begin));
    return copy;
}

static qn_status load_quantised(layer *out, const ckpt *c, const ckpt_shard *shard,
                                const st_tensor *t) {
    char *name = cli_text("%s_scale_inv", t->name), text[256];
    const ckpt_shard *scale_shard = nullptr;
    const st_tensor *scale = ckpt_find(c, name, &scale_shard);
    qn_status st = QN_OK;
    if (!scale)
        st = cli_fail(QN_E_INVALID, "%s: tensor %s is %s but there is no %s", shard->map.path,
                      t->name, t->dtype->name, name);
    else if (scale->ndim != 2 || strcmp(scale->dtype->name, "F32") != 0 ||
             scale->shape[0] != blocks_of(out->n) || scale->shape[1] != blocks_of(out->k))
        st = cli_fail(QN_E_INVALID,
                      "%s: tensor %s is %s, its weight needs [%" PRId64 ", %" PRId64 "] F32",
                      scale_shard->map.path, name, st_text(scale, text, sizeof text),
                      blocks_of(out->n), blocks_of(out->k));
    free(name);
    if (st != QN_OK)
        return st;
    out->kind = t->dtype->dl;
    out->q = copy_data(shard, t);
    out->scale = copy_data(scale_shard, scale);
    return QN_OK;
}

/** Quantises a floating-point weight as quern quantize does. */
static qn_status quantise_weight(layer *out, const ckpt_shard *shard, const st_tensor *t) {
    int64_t shape[2] = {out->n, out->k}, blocks[2] = {blocks_of(out->n), blocks_of(out->k)};
    const int64_t count = out->n * out->k;
    cli_device cpu;
    out->kind = (DLDataType){kDLFloat8_e4m3fn, 8, 1};
    out->q = cli_alloc((size_t)count);
    out->scale = cli_alloc((size_t)(blocks[0] * blocks[1]) * 4);
    float *wide = cli_alloc((size_t)count * 4); // every dtype is widened or rounded to f32
    for (int64_t i = 0; i < count; i++)
        wide[i] = (float)cli_number_get(t->dtype->dl, ckpt_data(shard, t), i);
    DLTensor x = matrix(wide, host, f32, shape), q = matrix(out->q, host, out->kind, shape);
    DLTensor scale = matrix(out->scale, host, f32, blocks);
    qn_status st = cli_device_open(&cpu, "cpu");
    if (st == QN_OK) {
        if ((st = qn_quantize_fp8(cpu.stream, &q, &scale, &x, LAYER_BLOCK, LAYER_BLOCK,
                                  weight_eps)) != QN_OK ||
            (st = qn_stream_sync(cpu.stream)) != QN_OK)
            st = cli_fail_lib(st, t->name);
        cli_device_close(&cpu);
    }
    free(wide);
    return st;
}

static qn_status set_exact(layer *out, const ckpt *original) {
    const ckpt_shard *shard = nullptr;
    const st_tensor *t = ckpt_find(original, out->name, &shard);
    char text[256];
    if (!t)
        return cli_fail(QN_E_NOT_FOUND, "%s: no tensor %s", original->path, out->name);
    if (!cli_is_float(t) || t->ndim != 2 || t->shape[0] != out->n || t->shape[1] != out->k)
        return cli_fail(QN_E_INVALID,
                        "%s: tensor %s is %s, accepted: [%" PRId64 ", %" PRId64
                        "] F32, F16, BF16, F64",
                        shard->map.path, t->name, st_text(t, text, sizeof text), out->n, out->k);
    out->exact = ckpt_data(shard, t);
    out->exact_dtype = t->dtype->dl;
    return QN_OK;
}

static qn_status load(layer *out, const ckpt *c, const ckpt *original) {
    const ckpt_shard *shard = nullptr;
    const st_tensor *t = ckpt_find(c, out->name, &shard);
    char text[256];
    if (!t)
        return cli_fail(QN_E_NOT_FOUND, "%s: no tensor %s", c->path, out->name);
    bool is_fp8 =
        strcmp(t->dtype->name, "F8_E4M3") == 0 || strcmp(t->dtype->name, "F8_E4M3FNUZ") == 0;
    if (t->ndim != 2 || !t->shape[0] || !t->shape[1] || !(is_fp8 || cli_is_float(t)))
        return cli_fail(QN_E_INVALID,
                        "%s: tensor %s is %s, accepted: a matrix of at least 1 x 1 of F8_E4M3, "
                        "F8_E4M3FNUZ, F32, F16, BF16 or F64",
                        shard->map.path, t->name, st_text(t, text, sizeof text));
    out->n = t->shape[0];
    out->k = t->shape[1];
    qn_status st = is_fp8 ? load_quantised(out, c, shard, t) : quantise_weight(out, shard, t);
    if (st == QN_OK && original)
        st = set_exact(out, original);
    else if (st == QN_OK && !is_fp8)
        st = set_exact(out, c);
    return st;
}

qn_status layer_open(layer *out, const ckpt *c, const ckpt *original, const char *name) {
    *out = (layer){.name = name};
    const qn_status st = load(out, c, original);
    if (st != QN_OK)
        layer_close(out);
    return st;
}

void layer_close(layer *l) {
    free(l->q);
    free(l->scale);
    *l = (layer){0};
}

// ---- running

/** All tensors of one product, on the device. */
typedef struct run_state {
    cli_tensor x, q, scale_a, b, scale_b, packed, packed_scale, d;
    bool is_packed;
} run_state;

static void run_state_free(run_state *s, cli_device *device) {
    cli_tensor *all[] = {&s->x,       &s->q,      &s->scale_a,      &s->b,
                         &s->scale_b, &s->packed, &s->packed_scale, &s->d};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cli_tensor_free(all[i], device);
}

static qn_status quantise_input(run_state *s, const layer *l, const layer_input *x,
                                cli_device *device) {
    int64_t blocks[2] = {x->m, blocks_of(x->k)}, shape[2] = {x->m, x->k};
    CLI_TRY(cli_tensor_make(&s->x, device, x->dtype, 2, shape));
    CLI_TRY(cli_tensor_make(&s->q, device, l->kind, 2, shape));
    CLI_TRY(cli_tensor_make(&s->scale_a, device, f32, 2, blocks));
    CLI_TRY(cli_tensor_load(&s->x, device, x->data));
    return qn_quantize_fp8(device->stream, &s->q.t, &s->scale_a.t, &s->x.t, 1, LAYER_BLOCK,
                           input_eps);
}

/** Copies the weight to the device, and packs it if the device's fastest kernel wants packed
 *  weights. */
static qn_status load_weight(run_state *s, const layer *l, cli_device *device) {
    int64_t shape[2] = {l->n, l->k}, blocks[2] = {blocks_of(l->n), blocks_of(l->k)}, packed[3];
    DLDataType dtype;
    qn_status st = QN_OK;
    CLI_TRY(cli_tensor_make(&s->b, device, l->kind, 2, shape));
    CLI_TRY(cli_tensor_make(&s->scale_b, device, f32, 2, blocks));
    CLI_TRY(cli_tensor_load(&s->b, device, l->q));
    CLI_TRY(cli_tensor_load(&s->scale_b, device, l->scale));
    st = qn_gemm_packed_shape(device->device, &s->b.t, packed, &dtype);
    if (st == QN_E_UNSUPPORTED)
        return QN_OK; // nothing to gain on this device
    CLI_TRY(st);
    CLI_TRY(cli_tensor_make(&s->packed, device, dtype, 3, packed));
    CLI_TRY(cli_tensor_make(&s->packed_scale, device, f32, 2, blocks));
    CLI_TRY(qn_gemm_pack(device->stream, &s->packed.t, &s->packed_scale.t, &s->b.t, &s->scale_b.t));
    s->is_packed = true;
    return st;
}

static qn_status multiply(run_state *s, cli_device *device) {
    qn_gemm_args args = {.struct_size = sizeof args,
                         .d = &s->d.t,
                         .a = &s->q.t,
                         .b = s->is_packed ? &s->packed.t : &s->b.t,
                         .scale_a = &s->scale_a.t,
                         .scale_b = s->is_packed ? &s->packed_scale.t : &s->scale_b.t,
                         .b_is_packed = s->is_packed};
    return qn_gemm(device->stream, &args);
}

static int by_value(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/** Finds the median time of `runs` products, each between two events. */
static qn_status time_product(run_state *s, cli_device *device, int runs, int64_t *median) {
    qn_event *events[2] = {nullptr, nullptr};
    int64_t *times = cli_alloc((size_t)runs * sizeof *times);
    qn_status st;
    CLI_TRY_OUT(qn_event_create(&events[0], device->device));
    CLI_TRY_OUT(qn_event_create(&events[1], device->device));
    for (int i = 0; i < runs; i++) {
        CLI_TRY_OUT(qn_event_record(events[0], device->stream));
        CLI_TRY_OUT(multiply(s, device));
        CLI_TRY_OUT(qn_event_record(events[1], device->stream));
        CLI_TRY_OUT(qn_event_sync(events[1]));
        CLI_TRY_OUT(qn_event_elapsed(&times[i], events[0], events[1]));
    }
    qsort(times, (size_t)runs, sizeof *times, by_value);
    *median = times[runs / 2];
out:
    qn_event_destroy(events[0]);
    qn_event_destroy(events[1]);
    free(times);
    return st;
}

static qn_status fetch(layer_product *out, const run_state *s, cli_device *device) {
    const int64_t m = s->d.shape[0], n = s->d.shape[1], k = s->q.shape[1];
    out->d = cli_alloc((size_t)(m * n) * 4);
    out->q = cli_alloc((size_t)(m * k));
    out->scale = cli_alloc((size_t)(m * blocks_of(k)) * 4);
    char *raw = cli_alloc((size_t)(m * n * (s->d.t.dtype.bits / 8)));
    qn_status st;
    CLI_TRY_OUT(cli_tensor_store(raw, device, &s->d));
    CLI_TRY_OUT(cli_tensor_store(out->q, device, &s->q));
    CLI_TRY_OUT(cli_tensor_store(out->scale, device, &s->scale_a));
    for (int64_t i = 0; i < m * n; i++)
        out->d[i] = (float)cli_number_get(s->d.t.dtype, raw, i);
out:
    free(raw);
    return st;
}

qn_status layer_run(layer_product *out, const layer *l, const layer_input *x, cli_device *device,
                    DLDataType out_dtype, int runs) {
    run_state s = {0};
    int64_t shape[2] = {x->m, l->n};
    *out = (layer_product){.time_ns = -1};
    qn_status st;
    CLI_TRY_OUT(quantise_input(&s, l, x, device));
    CLI_TRY_OUT(load_weight(&s, l, device));
    CLI_TRY_OUT(cli_tensor_make(&s.d, device, out_dtype, 2, shape));
    CLI_TRY_OUT(multiply(&s, device));
    out->kernel = qn_last_kernel();
    if (device->info.has_clock)
        CLI_TRY_OUT(time_product(&s, device, runs, &out->time_ns));
    CLI_TRY_OUT(fetch(out, &s, device));
out:
    if (st != QN_OK) {
        char *what = cli_text("%s on %s", l->name, device->info.spec);
        st = cli_fail_lib(st, what);
        free(what);
        layer_product_free(out);
    }
    run_state_free(&s, device);
    return st;
}

void layer_product_free(layer_product *p) {
    free(p->d);
    free(p->q);
    free(p->scale);
    *p = (layer_product){0};
}
