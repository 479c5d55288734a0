// SPDX-License-Identifier: Apache-2.0
// Rows of row ops in batches of several sizes.
#include "batches.h"

#include "area.h"

enum { MAX_TENSORS = 12, FIRST = 100 }; // FIRST: the first row in common

typedef struct tensors {
    qni_areas all; // first: qni_areas_reset takes it
    qni_area areas[MAX_TENSORS];
    DLTensor common[MAX_TENSORS]; // bytes of the common rows, in tensors that are written
    int64_t common_shape[MAX_TENSORS];
} tensors;

static int64_t row_bytes(const qni_batch_tensor *t) {
    return t->width * qni_dtype_bytes(t->dtype);
}

static void fill(qni_area *a, bool is_common, uint64_t random) {
    const bool is_float = (1u << a->dtype & qni_of_floats) != 0;
    void *host = qni_area_host(a);
    for (int64_t i = 0; is_float && i < a->count; i++)
        qni_put(a->dtype, host, i, (double)qni_random(&random) * 0x1p-30 - 2);
    for (int64_t i = 0; a->dtype == QNI_I32 && i < a->count; i++)
        ((int32_t *)host)[i] = (int32_t)(is_common ? i : i % 50);
}

static qn_status tensors_init(tensors *t, qn_device *device, const qni_row_op *what, int64_t rows,
                              uint64_t random) {
    t->all = (qni_areas){t->areas, what->num_tensors};
    for (int i = 0; i < what->num_tensors; i++) {
        const qni_batch_tensor *from = &what->tensors[i];
        if (from->width == 0)
            continue;
        QN_TRY(qni_area_create(&t->areas[i], from->name, device, from->dtype,
                               from->width * (from->is_common ? 1 : rows), 0));
        fill(&t->areas[i], from->is_common, random + (uint64_t)i);
    }
    return QN_OK;
}

/** Finds where row `first` of each tensor is. */
static void find_rows(tensors *t, const qni_row_op *what, int64_t first, void **data) {
    for (int i = 0; i < what->num_tensors; i++) {
        const qni_batch_tensor *from = &what->tensors[i];
        char *begin = qni_area_data(&t->areas[i], false);
        data[i] = !begin || from->is_common ? begin : begin + first * row_bytes(from);
    }
}

/** Finds the bytes of `count` common rows in the tensors that are written. Returns the number of
 *  these tensors. */
static int find_common(tensors *t, const qni_row_op *what, int64_t count, const DLTensor **out) {
    void *data[MAX_TENSORS];
    int written = 0;
    find_rows(t, what, FIRST, data);
    for (int i = 0; i < what->num_tensors; i++) {
        if (!data[i] || !what->tensors[i].is_written)
            continue;
        t->common_shape[i] = count * row_bytes(&what->tensors[i]);
        t->common[i] = (DLTensor){.data = data[i],
                                  .device = qn_device_id(t->areas[i].owner),
                                  .ndim = 1,
                                  .dtype = qni_dl_dtype(QNI_U8),
                                  .shape = &t->common_shape[i]};
        out[written++] = &t->common[i];
    }
    return written;
}

/** Runs `count` rows by one op's kernels, in the three batches. */
static qn_status try_rows(qni_trial_run *run, const qni_row_op *what, const qni_op *op, tensors *t,
                          int64_t count, int64_t most) {
    const struct {
        int64_t first, rows;
    } batches[] = {{FIRST, count}, {FIRST - 60, 200}, {0, most}};
    qni_trial_batches compared = {.run = run, .op = op};
    const DLTensor *outputs[MAX_TENSORS];
    const int num_outputs = find_common(t, what, count, outputs);
    qn_status st = QN_OK;
    for (size_t i = 0; st == QN_OK && i < sizeof batches / sizeof *batches; i++) {
        void *data[MAX_TENSORS];
        char text[160];
        find_rows(t, what, batches[i].first, data);
        snprintf(text, sizeof text, "%s: %ld of %ld rows", what->text, (long)count,
                 (long)batches[i].rows);
        st = qni_trial_batches_add(
            &compared,
            &(qni_trial_problem){.op = op,
                                 .text = text,
                                 .problem = what->make(what->context, data, batches[i].rows),
                                 .context = t,
                                 .reset = qni_areas_reset,
                                 .outputs = outputs,
                                 .num_outputs = num_outputs});
    }
    return st;
}

/** Returns whether the device runs the op's kernel on such a problem of all rows. */
static bool runs_kernel(const qn_device *device, const qni_row_op *what, const qni_op *op,
                        tensors *t, int64_t most) {
    const qni_variant *found;
    void *data[MAX_TENSORS];
    find_rows(t, what, 0, data);
    return qni_choose(op, device, what->make(what->context, data, most), &found) == QN_OK;
}

qn_status qni_trial_row_batches(qni_trial_run *run, const qni_row_op *what) {
    qn_device *device = qn_stream_device(qni_trial_stream(run));
    const bool is_cpu = qn_device_id(device).device_type == kDLCPU;
    const int64_t most = is_cpu ? 1700 : 2 * (int64_t)device->info.num_compute_units + 264;
    static const int64_t counts[] = {1, 16};
    tensors t = {};
    qn_status st;
    QN_TRY_OUT(tensors_init(&t, device, what, most, qni_trial_seed(run)));
    for (int k = -1; k < (is_cpu ? what->op->num_variants : 0); k++) {
        const qni_op one = {what->op->name, &what->op->variants[k < 0 ? 0 : k], 1, nullptr,
                            nullptr};
        const qni_op *op = k < 0 ? what->op : &one; // -1: the kernel that is best for each batch
        if (k >= 0 && !runs_kernel(device, what, op, &t, most))
            continue;
        for (int i = k >= 0; i < 2; i++)
            QN_TRY_OUT(try_rows(run, what, op, &t, counts[i], most));
    }
out:
    qni_areas_destroy(t.areas, what->num_tensors);
    return st;
}
