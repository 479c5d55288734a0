// SPDX-License-Identifier: Apache-2.0
// quern gemm: runs real layers of a checkpoint on one or more devices, and compares each product
// with double precision.
#include "layer.h"
#include "npy.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *weights_path, *original_path, *input_path, *output_path, *out_name = "bf16";
static cli_list tensors, devices;
static int64_t random_rows, seed = 1, runs = 20;
static bool as_json, force;

static const cli_option options[] = {
    {.name = "--weights",
     .value = "F",
     .kind = CLI_TEXT,
     .to = &weights_path,
     .help = "file or folder; weights that are not FP8 yet are quantised first"},
    {.name = "--tensor",
     .value = "T",
     .kind = CLI_LIST,
     .to = &tensors,
     .help = "name of a weight in F; may be given several times"},
    {.name = "--input",
     .value = "X.npy",
     .kind = CLI_TEXT,
     .to = &input_path,
     .help = "the activations, [m, k] of f32, f16 or bf16"},
    {.name = "--random",
     .value = "M",
     .kind = CLI_INT,
     .to = &random_rows,
     .min = 1,
     .max = 1 << 20,
     .help = "M rows of normally distributed bf16, in place of a file"},
    {.name = "--seed",
     .value = "N",
     .kind = CLI_INT,
     .to = &seed,
     .min = 0,
     .max = INT64_MAX,
     .help = "seed of --random and of sampled rows and columns (default: 1)"},
    {.name = "--device",
     .value = "SPEC",
     .kind = CLI_LIST,
     .to = &devices,
     .help = "where to run; may be given several times (default: auto)"},
    {.name = "--original",
     .value = "F",
     .kind = CLI_TEXT,
     .to = &original_path,
     .help = "the checkpoint before quantisation, to compare with as well"},
    {.name = "--out-dtype",
     .value = "bf16|f32",
     .kind = CLI_CHOICE,
     .to = &out_name,
     .help = "the product's type (default: bf16)"},
    {.name = "--output",
     .value = "D.npy",
     .kind = CLI_TEXT,
     .to = &output_path,
     .help = "write the product, as f32; for one tensor on one device"},
    {.name = "--runs",
     .value = "N",
     .kind = CLI_INT,
     .to = &runs,
     .min = 1,
     .max = 100000,
     .help = "timed runs, of which the median is shown (default: 20)"},
    {.name = "--force", .kind = CLI_FLAG, .to = &force, .help = "replace D.npy if it exists"},
    {.name = "--json", .kind = CLI_FLAG, .to = &as_json, .help = "print JSON"},
    {0}};

typedef struct job {
    ckpt weights, original;
    npy input;
    cli_output output;
    cli_device device[16];
    int num_devices;
    json_t *results;
    cli_table table;
    int64_t failed;
    char first_failure[512];
} job;

// ---- the input

static DLDataType out_dtype(void) {
    return strcmp(out_name, "bf16") == 0 ? (DLDataType){kDLBfloat, 16, 1}
                                         : (DLDataType){kDLFloat, 32, 1};
}

/** Makes the rows for one layer: the file's, or random rows of the layer's width. The caller frees
 *  data. */
static qn_status make_input(layer_input *out, const job *j, const layer *l) {
    if (input_path && j->input.cols != l->k)
        return cli_fail(QN_E_INVALID,
                        "%s: has %" PRId64 " columns, tensor %s is [%" PRId64 ", %" PRId64
                        "] and needs k = %" PRId64,
                        input_path, j->input.cols, l->name, l->n, l->k, l->k);
    const int64_t m = input_path ? j->input.rows : random_rows;
    *out = (layer_input){
        .dtype = input_path ? j->input.dtype : (DLDataType){kDLBfloat, 16, 1}, .m = m, .k = l->k};
    const int64_t count = m * l->k;
    uint16_t *data = cli_alloc((size_t)(count * out->dtype.bits / 8));
    out->data = data;
    if (input_path) {
        memcpy(data, j->input.data, (size_t)(count * out->dtype.bits / 8));
        return QN_OK;
    }
    cli_random random = {(uint64_t)seed};
    for (int64_t i = 0; i < count; i++)
        data[i] = cli_to_bf16((float)cli_random_normal(&random));
    return QN_OK;
}

// ---- one result

static void add_json(job *j, const layer *l, int64_t m, const cli_device *device,
                     const layer_product *p, const layer_error *e) {
    cli_json_add(
        j->results,
        cli_json_pack("{s:s, s:I, s:I, s:I, s:s, s:s, s:o, s:o, s:o, s:[I, I], s:I, s:I, s:s}",
                      "tensor", l->name, "m", (json_int_t)m, "n", (json_int_t)l->n, "k",
                      (json_int_t)l->k, "device", device->info.spec, "kernel", p->kernel,
                      "diff_to_unquantised", cli_json_number(e->exact_diff), "diff_to_quantised",
                      cli_json_number(e->quantised_diff), "error_over_tolerance",
                      cli_json_number(e->worst), "worst_at", (json_int_t)e->worst_row,
                      (json_int_t)e->worst_col, "elements_compared", (json_int_t)e->compared,
                      "time_ns", (json_int_t)p->time_ns, "times", cli_times(&device->info)));
}

static void add_row(job *j, const layer *l, int64_t m, const cli_device *device,
                    const layer_product *p, const layer_error *e) {
    char time[32];
    cli_table_add(&j->table, "%s", l->name);
    cli_table_add(&j->table, "%" PRId64 " x %" PRId64 " x %" PRId64, m, l->n, l->k);
    cli_table_add(&j->table, "%s", device->info.spec);
    cli_table_add(&j->table, "%s", p->kernel);
    cli_table_add(&j->table, isnan(e->exact_diff) ? "-" : "%.2e", e->exact_diff);
    cli_table_add(&j->table, "%.2e", e->quantised_diff);
    cli_table_add(&j->table, "%.3f", e->worst);
    cli_table_add(&j->table, "%s%s", cli_time_text(p->time_ns, time, sizeof time),
                  p->time_ns >= 0 && device->info.is_modelled ? " modelled" : "");
}

/** Judges a product: every element must be within its tolerance, and the whole within DeepGEMM's
 *  1e-3. The error of quantisation is shown, not judged. */
static void judge(job *j, const layer *l, const cli_device *device, const layer_error *e) {
    if (e->worst <= 1 && e->quantised_diff < 1e-3)
        return;
    if (!j->failed++)
        snprintf(j->first_failure, sizeof j->first_failure,
                 "%s on %s: element [%" PRId64 ", %" PRId64
                 "] is %.3g tolerances off, the whole differs by %.3g (accepted: 1, 1e-3)",
                 l->name, device->info.spec, e->worst_row, e->worst_col, e->worst,
                 e->quantised_diff);
}

/** Checks that quantised activations have equal bits on every device, so that one reference serves
 *  all. */
static qn_status check_same_bits(const layer *l, const layer_input *x, const cli_device *device,
                                 const layer_product *first, const layer_product *p) {
    const size_t q_bytes = (size_t)(x->m * x->k);
    const size_t scale_bytes = (size_t)(x->m * ((x->k + LAYER_BLOCK - 1) / LAYER_BLOCK)) * 4;
    if (memcmp(first->q, p->q, q_bytes) == 0 && memcmp(first->scale, p->scale, scale_bytes) == 0)
        return QN_OK;
    return cli_fail(QN_E_MISMATCH,
                    "%s: quantised activations on %s differ from those on the first device",
                    l->name, device->info.spec);
}

/** Runs one layer on every device. */
static qn_status run_layer(job *j, const layer *l, const layer_input *x) {
    layer_product product[16] = {0};
    layer_reference reference = {0};
    qn_status st = QN_OK;
    for (int i = 0; i < j->num_devices; i++) {
        layer_error error;
        CLI_TRY_OUT(layer_run(&product[i], l, x, &j->device[i], out_dtype(), (int)runs));
        CLI_TRY_OUT(check_same_bits(l, x, &j->device[i], &product[0], &product[i]));
        if (i == 0)
            layer_reference_make(&reference, l, x, product->q, product->scale, (uint64_t)seed);
        layer_compare(&error, &reference, product[i].d, out_dtype());
        add_json(j, l, x->m, &j->device[i], &product[i], &error);
        add_row(j, l, x->m, &j->device[i], &product[i], &error);
        judge(j, l, &j->device[i], &error);
    }
    if (output_path)
        st = npy_write(&j->output, output_path, product->d, x->m, l->n, force);
out:
    for (int i = 0; i < j->num_devices; i++)
        layer_product_free(&product[i]);
    layer_reference_free(&reference);
    return st;
}

// ---- the command

static qn_status check_options(void) {
    if (!weights_path || !tensors.count)
        return cli_fail(QN_E_INVALID, "option %s is missing",
                        weights_path ? "--tensor" : "--weights");
    if (!input_path == !random_rows)
        return cli_fail(QN_E_INVALID, "found %s of --input and --random, needs one",
                        input_path ? "both" : "neither");
    if (output_path && (tensors.count > 1 || devices.count > 1))
        return cli_fail(QN_E_INVALID,
                        "option --output: found %d tensors and %d devices, accepted: one each",
                        tensors.count, devices.count ? devices.count : 1);
    if (devices.count > 16)
        return cli_fail(QN_E_INVALID, "option --device: given %d times, accepted: at most 16",
                        devices.count);
    return cli_output_check(output_path, force);
}

static qn_status open_all(job *j) {
    CLI_TRY(ckpt_open(&j->weights, weights_path));
    if (original_path)
        CLI_TRY(ckpt_open(&j->original, original_path));
    if (input_path)
        CLI_TRY(npy_open(&j->input, input_path));
    if (input_path && !j->input.rows)
        CLI_TRY(cli_fail(QN_E_INVALID, "%s: has no rows, accepted: at least one", input_path));
    if (!devices.count)
        devices.items[devices.count++] = "auto";
    for (; j->num_devices < devices.count; j->num_devices++)
        CLI_TRY(cli_device_open(&j->device[j->num_devices], devices.items[j->num_devices]));
    return QN_OK;
}

static void close_all(job *j) {
    for (int i = 0; i < j->num_devices; i++)
        cli_device_close(&j->device[i]);
    cli_output_discard(&j->output);
    npy_close(&j->input);
    ckpt_close(&j->weights);
    ckpt_close(&j->original);
    json_decref(j->results);
    cli_table_free(&j->table);
}

/** Opens one layer and its input, and runs it unless it is only to be checked. */
static qn_status visit_tensor(job *j, const char *name, bool runs_it) {
    layer l;
    layer_input x = {0};
    qn_status st = layer_open(&l, &j->weights, original_path ? &j->original : nullptr, name);
    if (st != QN_OK)
        return st;
    if ((st = make_input(&x, j, &l)) == QN_OK && runs_it)
        st = run_layer(j, &l, &x);
    free((void *)x.data);
    layer_close(&l);
    qn_status inputs =
        cli_check_inputs(); // if the inputs have changed, that is why the layer failed, or why its
                            // result cannot be trusted
    return inputs == QN_OK ? st : inputs;
}

/** Checks every tensor before the first is run, so that a mistake costs no time. */
static qn_status visit_tensors(job *j) {
    qn_status st = QN_OK;
    for (int i = 0; st == QN_OK && i < tensors.count; i++)
        st = visit_tensor(j, tensors.items[i], false);
    cli_progress_begin("multiplying", tensors.count);
    for (int i = 0; st == QN_OK && i < tensors.count; i++) {
        st = visit_tensor(j, tensors.items[i], true);
        cli_progress_add(1);
    }
    cli_progress_end();
    return st;
}

/** Shows the results; the table also has those before a failure. */
static qn_status finish(job *j, qn_status st) {
    if (st == QN_OK && as_json)
        return cli_print_json(cli_json_pack("{s:O}", "results", j->results));
    if (!as_json && json_array_size(j->results)) {
        cli_table_print(&j->table, stdout);
        if (st == QN_OK)
            st = cli_flush();
    }
    return st;
}

static qn_status verdict(const job *j) {
    return j->failed ? cli_fail(QN_E_MISMATCH, "%" PRId64 " products are wrong; the first: %s",
                                j->failed, j->first_failure)
                     : QN_OK;
}

static int run(int, char **) {
    job j = {.results = json_array()};
    static const char *const titles[] = {"layer",          "m x n x k",    "device",    "kernel",
                                         "to unquantised", "to quantised", "error/tol", "time"};
    cli_table_init(&j.table, 8, titles);
    qn_status st;
    CLI_TRY_OUT(check_options());
    CLI_TRY_OUT(open_all(&j));
    st = visit_tensors(&j);
    CLI_TRY_OUT(finish(&j, st));
    if (output_path) // after printing, so that no file is left if printing fails
        CLI_TRY_OUT(cli_output_commit(&j.output));
    CLI_TRY_OUT(verdict(&j));
out:
    close_all(&j);
    return cli_finish("gemm", st);
}

const cli_command cli_gemm = {
    .name = "gemm",
    .arguments = "",
    .summary = "Run real layers of a checkpoint and compare with double precision",
    .details = "Multiplies the activations, quantised 1 x 128 on the device, with an FP8 weight.\n"
               "The columns 'to unquantised' and 'to quantised' compare the product x with a\n"
               "product y in double precision, of the values before and after quantisation; they\n"
               "show 1 - 2<x,y>/(<x,x>+<y,y>). error/tol is the largest error of one element of x\n"
               "to the product of the quantised values, over what the element's type and the\n"
               "length of the sum allow. Above 10^9 products, seeded rows and columns are\n"
               "compared. The exit status is 1 if error/tol is above 1 or the difference to the\n"
               "quantised product is 1e-3 or more.",
    .options = options,
    .run = run};
