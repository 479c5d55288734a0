// SPDX-License-Identifier: Apache-2.0
// The gemm family's check problems, for every device: `quern check` and the tests run them.
#include "gemm_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FN QNI_E4M3FN
#define FNUZ QNI_E4M3FNUZ
#define BF QNI_BF16
#define F32 QNI_F32
#define DENSE(M, N, K, A, B, D, ...)                                                               \
    {.m = M, .n = N, .k = K, .dtype_a = A, .dtype_b = B, .dtype_d = D, __VA_ARGS__}
#define GROUPED(FORM, GROUPS, M, N, K, A, B, ...)                                                  \
    {.grouping = QN_GEMM_GROUPED_##FORM,                                                           \
     .groups = GROUPS,                                                                             \
     .m = M,                                                                                       \
     .n = N,                                                                                       \
     .k = K,                                                                                       \
     .dtype_a = A,                                                                                 \
     .dtype_b = B,                                                                                 \
     .dtype_d = BF,                                                                                \
     __VA_ARGS__}

// clang-format off
/** A few of everything: what a quick check runs. */
static const qni_gemm_spec quick_specs[] = {
    DENSE(1, 129, 129, FN, FN, BF),
    DENSE(65, 130, 260, FN, FN, BF, .is_packed = true),
    DENSE(17, 64, 128, FN, FNUZ, F32, .fill = QNI_FILL_POWERS, .adds_c = true),
    DENSE(33, 66, 130, FN, FN, BF, .fill = QNI_FILL_NAN),
    DENSE(33, 100, 200, BF, BF, BF, .is_strided = true),
    DENSE(3, 5, 0, FN, FN, BF, .adds_c = true),
    GROUPED(INDEX, 3, 0, 40, 136, FN, FN),
    GROUPED(ENDS, 3, 0, 40, 136, FN, FN, .zero_padding = true),
    GROUPED(MASKED, 4, 9, 40, 136, FN, FN),
};

static const qni_gemm_spec full_specs[] = {
    // Edges of the tiles, one dimension at a time.
    DENSE(1, 1, 1, FN, FN, BF), DENSE(1, 256, 512, FN, FN, BF, .is_packed = true),
    DENSE(2, 63, 127, FN, FN, F32), DENSE(5, 65, 128, FN, FN, BF, .is_packed = true),
    DENSE(16, 127, 129, FN, FN, BF, .is_packed = true), DENSE(31, 128, 255, FN, FN, F32),
    DENSE(64, 257, 384, FN, FN, BF, .is_packed = true), DENSE(127, 129, 257, FN, FN, BF),
    DENSE(128, 128, 256, FN, FN, BF, .is_packed = true), DENSE(129, 192, 130, FN, FN, F32),
    DENSE(257, 64, 131, FN, FN, BF, .is_packed = true), DENSE(300, 320, 160, FN, FN, BF),
    // Encodings.
    DENSE(34, 70, 140, FNUZ, FNUZ, BF), DENSE(34, 70, 140, FN, FNUZ, BF),
    DENSE(34, 70, 140, FNUZ, FN, F32), DENSE(34, 70, 140, FNUZ, FNUZ, BF, .is_packed = true),
    DENSE(34, 70, 140, FNUZ, FN, BF, .is_packed = true), DENSE(34, 70, 140, FN, FNUZ, BF, .is_packed = true),
    // What matrix cores of the FNUZ kinds take from packed weights: whole, odd and broken K-blocks,
    // edges of rows.
    DENSE(1, 130, 512, FNUZ, FNUZ, BF, .is_packed = true), DENSE(127, 128, 256, FNUZ, FNUZ, BF, .is_packed = true),
    DENSE(129, 257, 640, FNUZ, FNUZ, F32, .is_packed = true), DENSE(257, 129, 1024, FNUZ, FNUZ, BF, .is_packed = true),
    DENSE(255, 60, 780, FNUZ, FNUZ, BF, .is_packed = true, .is_strided = true), DENSE(70, 140, 388, FNUZ, FNUZ, F32, .is_packed = true, .adds_c = true),
    DENSE(300, 130, 772, FN, FN, BF, .is_packed = true, .is_strided = true), DENSE(33, 66, 516, FNUZ, FNUZ, BF, .fill = QNI_FILL_NAN, .is_packed = true),
    DENSE(33, 66, 516, FN, FN, BF, .fill = QNI_FILL_ANY, .is_packed = true),
    GROUPED(INDEX, 5, 0, 130, 384, FNUZ, FNUZ, .is_packed = true), GROUPED(ENDS, 5, 0, 130, 516, FNUZ, FNUZ, .is_packed = true, .zero_padding = true),
    GROUPED(MASKED, 4, 140, 130, 768, FNUZ, FNUZ, .is_packed = true), GROUPED(MASKED, 4, 140, 72, 516, FN, FN, .is_packed = true),
    // Layouts.
    DENSE(37, 75, 150, FN, FN, BF, .b_transposed = true), DENSE(37, 75, 150, FN, FN, BF, .a_transposed = true),
    DENSE(37, 75, 150, FN, FN, BF, .a_transposed = true, .b_transposed = true),
    DENSE(37, 75, 150, FN, FN, BF, .is_strided = true),
    DENSE(37, 75, 150, FN, FN, F32, .is_strided = true, .is_packed = true, .adds_c = true),
    DENSE(37, 75, 150, FN, FN, BF, .is_strided = true, .a_transposed = true, .b_transposed = true),
    DENSE(1, 75, 150, FN, FN, BF, .a_transposed = true), DENSE(37, 1, 150, FN, FN, BF, .b_transposed = true),
    // Adding c.
    DENSE(37, 75, 150, FN, FN, BF, .adds_c = true), DENSE(37, 75, 150, FN, FN, BF, .c_is_d = true),
    DENSE(37, 75, 150, FN, FN, F32, .c_is_d = true, .is_strided = true),
    DENSE(37, 75, 0, FN, FN, F32), DENSE(37, 75, 0, FN, FN, BF, .c_is_d = true), DENSE(9, 75, 0, BF, BF, BF),
    // What the matrices hold.
    DENSE(33, 66, 400, FN, FN, F32, .fill = QNI_FILL_POWERS), DENSE(33, 66, 400, FN, FN, BF, .fill = QNI_FILL_POWERS, .is_packed = true),
    DENSE(33, 66, 400, BF, BF, F32, .fill = QNI_FILL_POWERS, .adds_c = true), DENSE(33, 66, 130, FN, FN, BF, .fill = QNI_FILL_EQUAL),
    DENSE(33, 66, 130, FN, FN, BF, .fill = QNI_FILL_LARGE), DENSE(33, 66, 130, BF, BF, F32, .fill = QNI_FILL_LARGE),
    DENSE(33, 66, 130, FN, FN, BF, .fill = QNI_FILL_TINY), DENSE(33, 66, 130, FNUZ, FNUZ, F32, .fill = QNI_FILL_TINY),
    DENSE(33, 66, 130, BF, BF, F32, .fill = QNI_FILL_TINY),
    DENSE(33, 66, 130, FN, FN, BF, .fill = QNI_FILL_NAN, .is_packed = true), DENSE(33, 66, 130, FNUZ, FNUZ, F32, .fill = QNI_FILL_NAN),
    DENSE(33, 66, 130, FNUZ, FNUZ, BF, .fill = QNI_FILL_NAN, .is_packed = true), DENSE(33, 66, 130, BF, BF, BF, .fill = QNI_FILL_NAN),
    DENSE(33, 66, 600, FN, FN, BF, .fill = QNI_FILL_SPARSE), DENSE(33, 66, 600, FN, FN, F32, .fill = QNI_FILL_SPARSE, .is_packed = true),
    DENSE(33, 66, 130, FN, FN, BF, .fill = QNI_FILL_NEGATIVE_ZERO), DENSE(33, 66, 130, FN, FN, BF, .fill = QNI_FILL_NEGATIVE_ZERO, .is_packed = true),
    DENSE(33, 66, 130, FN, FN, F32, .fill = QNI_FILL_ANY, .is_packed = true), DENSE(33, 66, 130, FNUZ, FNUZ, F32, .fill = QNI_FILL_ANY),
    DENSE(33, 66, 130, BF, BF, F32, .fill = QNI_FILL_ANY),
    // One row, for which kernels have ways of their own.
    DENSE(1, 66, 300, FN, FN, F32, .fill = QNI_FILL_ANY, .is_packed = true), DENSE(1, 66, 300, FNUZ, FNUZ, F32, .fill = QNI_FILL_ANY, .is_packed = true),
    DENSE(1, 66, 300, FN, FN, BF, .fill = QNI_FILL_NAN, .is_packed = true), DENSE(1, 66, 300, FNUZ, FNUZ, BF, .fill = QNI_FILL_NAN, .is_packed = true),
    DENSE(1, 66, 300, FN, FNUZ, F32, .fill = QNI_FILL_POWERS, .is_packed = true), DENSE(1, 66, 300, FNUZ, FN, F32, .fill = QNI_FILL_TINY, .is_packed = true),
    // bf16.
    DENSE(1, 129, 300, BF, BF, BF), DENSE(65, 130, 257, BF, BF, F32), DENSE(130, 260, 130, BF, BF, BF, .adds_c = true),
    DENSE(37, 75, 150, BF, BF, BF, .b_transposed = true), DENSE(37, 75, 150, BF, BF, BF, .a_transposed = true),
    DENSE(37, 75, 150, BF, BF, F32, .a_transposed = true, .b_transposed = true, .is_strided = true),
    // Groups.
    GROUPED(INDEX, 7, 0, 72, 144, FN, FN), GROUPED(INDEX, 7, 0, 72, 144, FN, FN, .is_packed = true),
    GROUPED(INDEX, 4, 0, 72, 144, FN, FN, .rows = QNI_ROWS_NONE), GROUPED(INDEX, 1, 0, 72, 144, FNUZ, FN),
    GROUPED(INDEX, 6, 0, 33, 70, BF, BF), GROUPED(INDEX, 6, 0, 33, 70, FN, FN, .is_strided = true, .b_transposed = true),
    GROUPED(INDEX, 6, 0, 33, 70, FN, FN, .fill = QNI_FILL_NAN),
    GROUPED(ENDS, 7, 0, 72, 144, FN, FN), GROUPED(ENDS, 7, 0, 72, 144, FN, FN, .is_packed = true, .zero_padding = true),
    GROUPED(ENDS, 7, 0, 72, 144, FN, FN, .m_alignment = 16, .zero_padding = true), GROUPED(ENDS, 7, 0, 33, 70, BF, BF, .m_alignment = 1),
    GROUPED(ENDS, 4, 0, 72, 144, FN, FN, .rows = QNI_ROWS_NONE, .zero_padding = true),
    GROUPED(ENDS, 6, 0, 33, 70, FN, FN, .is_strided = true, .zero_padding = true),
    GROUPED(MASKED, 5, 70, 72, 144, FN, FN), GROUPED(MASKED, 5, 70, 72, 144, FN, FN, .is_packed = true, .expected_m = 1),
    GROUPED(MASKED, 5, 130, 40, 130, FN, FNUZ, .expected_m = 1000000), GROUPED(MASKED, 3, 33, 40, 130, BF, BF),
    GROUPED(MASKED, 4, 70, 40, 130, FN, FN, .rows = QNI_ROWS_NONE), GROUPED(MASKED, 4, 70, 40, 130, FN, FN, .rows = QNI_ROWS_FULL),
    GROUPED(MASKED, 5, 33, 40, 130, FN, FN, .is_strided = true, .a_transposed = true),
    // Places far along each dimension: the ninth block of n, rows past 1024, more than 32 K-blocks,
    // more groups than lanes.
    DENSE(2, 1100, 140, FN, FN, BF), DENSE(2, 1100, 140, FN, FN, BF, .is_packed = true, .adds_c = true),
    DENSE(3, 1100, 256, FNUZ, FNUZ, F32, .is_packed = true), DENSE(2, 1100, 140, FN, FN, BF, .b_transposed = true),
    DENSE(2, 1100, 70, BF, BF, BF), DENSE(2, 1100, 70, BF, BF, F32, .b_transposed = true, .adds_c = true),
    DENSE(3, 20, 4364, FN, FN, BF), DENSE(3, 20, 4364, FN, FN, F32, .is_packed = true), DENSE(3, 20, 4364, FNUZ, FNUZ, BF, .is_packed = true, .is_strided = true),
    DENSE(3, 20, 4364, FN, FN, BF, .is_strided = true, .a_transposed = true, .b_transposed = true), DENSE(3, 20, 4364, BF, BF, BF),
    DENSE(1100, 6, 140, FN, FN, BF), DENSE(1100, 6, 140, FN, FN, F32, .is_packed = true, .adds_c = true),
    DENSE(1100, 6, 256, FNUZ, FNUZ, BF, .is_packed = true), DENSE(1100, 6, 140, FN, FN, BF, .a_transposed = true),
    DENSE(1100, 6, 70, BF, BF, BF, .adds_c = true), DENSE(1100, 6, 70, BF, BF, F32, .a_transposed = true),
    GROUPED(INDEX, 67, 0, 6, 140, FN, FN, .rows = QNI_ROWS_FEW), GROUPED(INDEX, 67, 0, 6, 140, FNUZ, FNUZ, .rows = QNI_ROWS_FEW, .is_packed = true),
    GROUPED(ENDS, 67, 0, 6, 140, FN, FN, .rows = QNI_ROWS_FEW, .m_alignment = 4), GROUPED(ENDS, 67, 0, 6, 140, FN, FN, .rows = QNI_ROWS_FEW, .is_packed = true, .m_alignment = 4),
    GROUPED(ENDS, 67, 0, 6, 256, FNUZ, FNUZ, .rows = QNI_ROWS_FEW, .is_packed = true, .m_alignment = 16, .zero_padding = true), GROUPED(ENDS, 67, 0, 6, 70, BF, BF, .rows = QNI_ROWS_FEW, .m_alignment = 4),
    GROUPED(MASKED, 67, 3, 6, 140, FN, FN, .rows = QNI_ROWS_FEW), GROUPED(MASKED, 67, 3, 6, 140, FN, FN, .rows = QNI_ROWS_FEW, .is_packed = true),
    GROUPED(MASKED, 67, 3, 6, 256, FNUZ, FNUZ, .rows = QNI_ROWS_FEW, .is_packed = true), GROUPED(MASKED, 2, 1030, 6, 256, FNUZ, FNUZ, .rows = QNI_ROWS_FULL, .is_packed = true),
    GROUPED(MASKED, 67, 3, 6, 70, BF, BF, .rows = QNI_ROWS_FEW),
};
// clang-format on

// ---- gemm

static qn_status reset_case(void *context, [[maybe_unused]] qn_stream *stream) {
    return qni_gemm_case_reset(context);
}

static qn_status compare_case(void *context, [[maybe_unused]] qn_stream *stream, double *error,
                              char *detail, size_t room) {
    return qni_gemm_case_compare(context, error, detail, room);
}

static qn_status try_spec(qni_trial_run *run, const qni_gemm_spec *spec) {
    qni_gemm_case c;
    qn_status st = qni_gemm_case_create(&c, qni_trial_stream(run), spec, qni_trial_seed(run));
    const DLTensor *outputs[] = {&c.d.t};
    const qni_trial_problem problem = {.op = &qni_op_gemm,
                                       .text = c.text,
                                       .problem = &c.problem,
                                       .context = &c,
                                       .reset = reset_case,
                                       .compare = compare_case,
                                       .outputs = outputs,
                                       .num_outputs = 1};
    if (st == QN_OK)
        st = qni_trial_problem_run(run, &problem);
    qni_gemm_case_destroy(&c);
    return st;
}

static qn_status try_gemm(qni_trial_run *run) {
    qn_status st = QN_OK;
    for (size_t i = 0; i < sizeof quick_specs / sizeof *quick_specs && st == QN_OK; i++)
        st = try_spec(run, &quick_specs[i]);
    if (st == QN_OK)
        st = qni_gemm_try_batches(run);
    if (qni_trial_is_quick(run))
        return st;
    for (size_t i = 0; i < sizeof full_specs / sizeof *full_specs && st == QN_OK; i++)
        st = try_spec(run, &full_specs[i]);
    return st;
}

// ---- gemm_pack: byte for byte

/** Weights and their packed form, on the host and on the device. */
typedef struct pack_case {
    char text[96];
    qni_gemm_pack_problem problem, host;
    uint8_t *want, *got;
    float *want_scale, *got_scale;
    void *device[4]; // b, scale_b, packed, packed_scale
    int64_t bytes[4];
    DLTensor outputs[2];
    int64_t shapes[2];
} pack_case;

static void pack_case_destroy(pack_case *c, qn_device *device) {
    for (int i = 0; i < 4; i++)
        if (c->device[i])
            qn_free(device, c->device[i]);
    free(c->want);
    free(c->got);
    free(c->want_scale);
    free(c->got_scale);
    free((void *)c->host.b);
    free((void *)c->host.scale_b);
}

/** Every code there is, NaN and negative zero among them, and scales that differ. */
static void fill_pack_case(pack_case *c, const qn_device *device) {
    const qni_gemm_pack_problem *p = &c->host;
    const int64_t scales = c->bytes[1] / 4;
    for (int64_t i = 0; i < c->bytes[0]; i++)
        ((uint8_t *)p->b)[i] = (uint8_t)(i * 37 + i / 256);
    const float factor = p->dtype_in == p->dtype_out ? 1 : 2;
    for (int64_t i = 0; i < scales; i++) {
        ((float *)p->scale_b)[i] = (float)(i + 1) * 0.37f;
        c->want_scale[i] = p->scale_b[i] * factor;
    }
    for (int64_t g = 0; g < p->groups; g++)
        for (int64_t n = 0; n < p->n; n++)
            for (int64_t k = 0; k < p->k; k++) {
                const int64_t at = qni_gemm_packed_offset(device, p->packed_k, n, k);
                const uint8_t byte = ((const uint8_t *)p->b)[g * p->b_group + n * p->b_n + k];
                c->want[g * p->packed_n * p->packed_k + at] =
                    qni_gemm_pack_byte(p->dtype_in, p->dtype_out, byte);
            }
}

static qn_status pack_case_alloc(pack_case *c, qn_stream *stream) {
    qni_gemm_pack_problem *h = &c->host;
    c->want = calloc(1, (size_t)c->bytes[2]);
    c->got = malloc((size_t)c->bytes[2]);
    c->want_scale = malloc((size_t)c->bytes[3]);
    c->got_scale = malloc((size_t)c->bytes[3]);
    h->b = malloc((size_t)c->bytes[0]);
    h->scale_b = malloc((size_t)c->bytes[1]);
    if (!c->want || !c->got || !c->want_scale || !c->got_scale || !h->b || !h->scale_b)
        return QN_FAIL(QN_E_MEMORY, "gemm_pack check: out of memory");
    qn_status st = QN_OK;
    for (int i = 0; i < 4 && st == QN_OK; i++)
        st = qn_malloc(stream->device, &c->device[i], c->bytes[i]);
    return st;
}

static qn_status pack_case_create(pack_case *c, qn_stream *stream, qni_dtype dtype, int64_t groups,
                                  int64_t n, int64_t k) {
    qn_device *device = stream->device;
    int64_t tile_n, tile_k, nb = (n + 127) / 128, kb = (k + 127) / 128;
    qni_gemm_pack_tiles(device, &tile_n, &tile_k);
    *c = (pack_case){.host = {.dtype_in = dtype,
                              .dtype_out = qni_gemm_pack_dtype(device, dtype),
                              .groups = groups,
                              .n = n,
                              .k = k,
                              .packed_n = (n + tile_n - 1) / tile_n * tile_n,
                              .packed_k = (k + tile_k - 1) / tile_k * tile_k,
                              .b_group = n * (k + 3),
                              .b_n = k + 3,
                              .scale_b_group = nb * kb,
                              .scale_b_nb = kb}};
    snprintf(c->text, sizeof c->text, "groups=%ld n=%ld k=%ld %s -> %s", (long)groups, (long)n,
             (long)k, qni_dtype_name(dtype), qni_dtype_name(c->host.dtype_out));
    c->bytes[0] = groups * c->host.b_group;
    c->bytes[1] = c->bytes[3] = groups * nb * kb * 4;
    c->bytes[2] = groups * c->host.packed_n * c->host.packed_k;
    const qni_backend *backend = device->backend;
    QN_TRY(pack_case_alloc(c, stream));
    fill_pack_case(c, device);
    QN_TRY(backend->copy(stream, c->device[0], c->host.b, c->bytes[0], QNI_COPY_TO_DEVICE));
    QN_TRY(backend->copy(stream, c->device[1], c->host.scale_b, c->bytes[1], QNI_COPY_TO_DEVICE));
    c->problem = c->host;
    c->problem.b = c->device[0];
    c->problem.scale_b = c->device[1];
    c->problem.packed = c->device[2];
    c->problem.packed_scale = c->device[3];
    return QN_OK;
}

static qn_status reset_pack(void *context, qn_stream *stream) {
    pack_case *c = context;
    const qni_backend *backend = stream->device->backend;
    QN_TRY(backend->fill(stream, c->device[2], 0xAA, c->bytes[2]));
    return backend->fill(stream, c->device[3], 0xFF, c->bytes[3]);
}

static qn_status compare_pack(void *context, qn_stream *stream, double *error, char *detail,
                              size_t room) {
    pack_case *c = context;
    const qni_backend *backend = stream->device->backend;
    QN_TRY(backend->copy(stream, c->got, c->device[2], c->bytes[2], QNI_COPY_TO_HOST));
    QN_TRY(backend->copy(stream, c->got_scale, c->device[3], c->bytes[3], QNI_COPY_TO_HOST));
    QN_TRY(qn_stream_sync(stream));
    *error = 0;
    for (int64_t i = 0; i < c->bytes[2] && *error == 0; i++)
        if (c->got[i] != c->want[i]) {
            *error = INFINITY;
            snprintf(detail, room, "packed byte %ld is 0x%02x, needs 0x%02x", (long)i, c->got[i],
                     c->want[i]);
        }
    for (int64_t i = 0; i < c->bytes[3] / 4 && *error == 0; i++)
        if (!(c->got_scale[i] == c->want_scale[i])) {
            *error = INFINITY;
            snprintf(detail, room, "packed scale %ld is %.9g, needs %.9g", (long)i,
                     (double)c->got_scale[i], (double)c->want_scale[i]);
        }
    return QN_OK;
}

static qn_status try_pack_size(qni_trial_run *run, qni_dtype dtype, int64_t groups, int64_t n,
                               int64_t k) {
    pack_case c;
    qn_stream *stream = qni_trial_stream(run);
    qn_status st = pack_case_create(&c, stream, dtype, groups, n, k);
    const qni_trial_problem problem = {.op = &qni_op_gemm_pack,
                                       .text = c.text,
                                       .problem = &c.problem,
                                       .context = &c,
                                       .reset = reset_pack,
                                       .compare = compare_pack};
    if (st == QN_OK)
        st = qni_trial_problem_run(run, &problem);
    pack_case_destroy(&c, stream->device);
    return st;
}

static qn_status try_pack(qni_trial_run *run) {
    static const int64_t sizes[][3] = {{1, 1, 1},     {2, 130, 260}, {1, 64, 128},  {1, 65, 127},
                                       {3, 257, 384}, {1, 1100, 40}, {1, 20, 4364}, {67, 6, 20}};
    const int count = qni_trial_is_quick(run) ? 2 : (int)(sizeof sizes / sizeof *sizes);
    const qn_status st = QN_OK;
    for (int i = 0; i < count && st == QN_OK; i++) {
        QN_TRY(try_pack_size(run, QNI_E4M3FN, sizes[i][0], sizes[i][1], sizes[i][2]));
        QN_TRY(try_pack_size(run, QNI_E4M3FNUZ, sizes[i][0], sizes[i][1], sizes[i][2]));
    }
    return st;
}

static qn_status try_op(qni_trial_run *run, const qni_op *op) {
    return op == &qni_op_gemm ? try_gemm(run) : try_pack(run);
}

static const qni_op *const ops[] = {&qni_op_gemm, &qni_op_gemm_pack, nullptr};
const qni_family qni_family_gemm = {"gemm", ops, try_op};
