// SPDX-License-Identifier: Apache-2.0
// Measures how long the simulated MI300X takes for one FP8 GEMM, by each way of simulating. Prints
// `name value unit` lines, or JSON.
//
//   sim_gemm [--json] [--runs N] [M N K] [QUERN_SIM...]
//
// Each text for QUERN_SIM gets a process of its own, which multiplies through the public API:
// e4m3fnuz by packed e4m3fnuz into bf16, normal data, 4096 x 2112 x 7168 if no size is given. The
// time is that of the wall clock, from the launch to the end, the median of N runs (default 3).
// Every result is compared with the CPU's.
#include <quern/quern.h>

#include <ctype.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 128, MAX_RUNS = 32 };

static const DLDataType f32 = {kDLFloat, 32, 1}, bf16 = {kDLBfloat, 16, 1},
                        fp8 = {kDLFloat8_e4m3fnuz, 8, 1};

static int64_t m = 4096, n = 2112, k = 7168, runs = 3;
static bool as_json;

static void check(qn_status status) {
    if (status != QN_OK) {
        fprintf(stderr, "sim_gemm: %s\n", qn_last_error());
        exit(1);
    }
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- data

typedef struct place {
    qn_device *device;
    qn_stream *stream;
} place;

static place open_place(const char *spec) {
    place p;
    check(qn_device_open(&p.device, spec));
    check(qn_stream_create(&p.stream, p.device));
    return p;
}

typedef struct matrix {
    DLTensor t;
    int64_t shape[3];
} matrix;

static int64_t num_bytes(const matrix *x) {
    int64_t count = x->t.dtype.bits / 8;
    for (int32_t i = 0; i < x->t.ndim; i++)
        count *= x->shape[i];
    return count;
}

static matrix *make(const place *p, DLDataType dtype, int32_t ndim, const int64_t *shape) {
    matrix *x = calloc(1, sizeof *x);
    if (!x)
        exit(1);
    memcpy(x->shape, shape, (size_t)ndim * sizeof *shape);
    x->t = (DLTensor){
        .device = qn_device_id(p->device), .ndim = ndim, .dtype = dtype, .shape = x->shape};
    check(qn_malloc(p->device, &x->t.data, num_bytes(x)));
    return x;
}

static matrix *make2(const place *p, DLDataType dtype, int64_t rows, int64_t cols) {
    return make(p, dtype, 2, (const int64_t[]){rows, cols});
}

/** Makes a copy at `to`; the stream is that of the side which is a device. */
static matrix *copy_to(const place *to, qn_stream *stream, matrix *from) {
    matrix *x = make(to, from->t.dtype, from->t.ndim, from->shape);
    check(qn_copy(stream, &x->t, &from->t));
    return x;
}

/** Returns a nearly normal number: the sum of four uniform ones. */
static float random_normal(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t x = *state >> 32;
    const int sum =
        (int)(x & 255) + (int)(x >> 8 & 255) + (int)(x >> 16 & 255) + (int)(x >> 24 & 255);
    return (float)(sum - 510) / 148;
}

/** Makes numbers in FP8 and their scales, by blocks of block_rows x 128. */
static void make_quantised(const place *cpu, matrix **q, matrix **scale, int64_t rows,
                           int64_t block_rows) {
    matrix *x = make2(cpu, f32, rows, k);
    uint64_t state = (uint64_t)rows;
    for (int64_t i = 0; i < rows * k; i++)
        ((float *)x->t.data)[i] = random_normal(&state);
    *q = make2(cpu, fp8, rows, k);
    *scale = make2(cpu, f32, (rows + block_rows - 1) / block_rows, (k + BLOCK - 1) / BLOCK);
    check(qn_quantize_fp8(cpu->stream, &(*q)->t, &(*scale)->t, &x->t, block_rows, BLOCK, 1e-4f));
    qn_free(cpu->device, x->t.data);
    free(x);
}

typedef struct problem {
    matrix *a, *b, *scale_a, *scale_b, *d;
    bool is_packed;
} problem;

static void multiply(const place *p, const problem *x) {
    qn_gemm_args args = {.struct_size = sizeof args,
                         .d = &x->d->t,
                         .a = &x->a->t,
                         .b = &x->b->t,
                         .scale_a = &x->scale_a->t,
                         .scale_b = &x->scale_b->t,
                         .b_is_packed = x->is_packed};
    check(qn_gemm(p->stream, &args));
    check(qn_stream_sync(p->stream));
}

static problem pack(const place *p, const problem *host) {
    problem x = {copy_to(p, p->stream, host->a),
                 copy_to(p, p->stream, host->b),
                 copy_to(p, p->stream, host->scale_a),
                 copy_to(p, p->stream, host->scale_b),
                 make2(p, bf16, m, n),
                 true};
    int64_t shape[3];
    DLDataType dtype;
    check(qn_gemm_packed_shape(p->device, &x.b->t, shape, &dtype));
    matrix *packed = make(p, dtype, 3, shape);
    matrix *scale = make2(p, f32, x.scale_b->shape[0], x.scale_b->shape[1]);
    check(qn_gemm_pack(p->stream, &packed->t, &scale->t, &x.b->t, &x.scale_b->t));
    check(qn_stream_sync(p->stream));
    x.b = packed;
    x.scale_b = scale;
    return x;
}

// ---- comparison

/** Replaces codes by their magnitudes. No code is NaN. */
static void remove_signs(const matrix *x) {
    for (int64_t i = 0; i < num_bytes(x); i++)
        ((uint8_t *)x->t.data)[i] &= 0x7f;
}

static float of_bf16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

/** Returns the largest quotient of error and bound. The bound is two roundings to bf16, and twice k
 *  roundings to f32 of the products' magnitude. */
static double worst_error(const place *cpu, problem *host, const matrix *got) {
    double worst = 0;
    host->d = make2(cpu, f32, m, n);
    multiply(cpu, host);
    problem magnitudes = *host;
    remove_signs(host->a);
    remove_signs(host->b);
    magnitudes.d = make2(cpu, f32, m, n);
    multiply(cpu, &magnitudes);
    for (int64_t i = 0; i < m * n; i++) {
        const double want = ((float *)host->d->t.data)[i];
        const double bound = 0x1p-7 * fabs(want) +
                             2 * (double)k * 0x1p-24 * ((float *)magnitudes.d->t.data)[i] +
                             0x1p-126;
        const double error = fabs(of_bf16(((uint16_t *)got->t.data)[i]) - want) / bound;
        worst = error <= worst ? worst : error;
    }
    return worst;
}

// ---- one way of simulating

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *mode, bool is_first, double median, const char *kernel,
                   double error) {
    if (as_json) {
        printf("%s\n  \"%s\": {\"value\": %.4g, \"unit\": \"s\", \"m\": %lld, \"n\": %lld, \"k\": "
               "%lld, "
               "\"kernel\": \"%s\", \"error_of_bound\": %.3g}",
               is_first ? "" : ",", mode, median, (long long)m, (long long)n, (long long)k, kernel,
               error);
    } else {
        printf("%-22s %8.3f s   %lld x %lld x %lld, %s, error %.3g of its bound\n", mode, median,
               (long long)m, (long long)n, (long long)k, kernel, error);
    }
    fflush(stdout);
}

/** Runs one way in a process of its own, because the simulator reads QUERN_SIM once. */
static int run_mode(const char *mode, bool is_first) {
    setenv("QUERN_SIM", mode, 1);
    place cpu = open_place("cpu"), sim = open_place("sim:gfx942");
    problem host = {};
    make_quantised(&cpu, &host.a, &host.scale_a, m, 1);
    make_quantised(&cpu, &host.b, &host.scale_b, n, BLOCK);
    problem device = pack(&sim, &host);
    double times[MAX_RUNS];
    for (int64_t i = 0; i < runs; i++) {
        const double start = seconds();
        multiply(&sim, &device);
        times[i] = seconds() - start;
    }
    const char *kernel = qn_last_kernel();
    qsort(times, (size_t)runs, sizeof *times, compare_doubles);
    const double error = worst_error(&cpu, &host, copy_to(&cpu, sim.stream, device.d));
    report(mode, is_first, times[runs / 2], kernel, error);
    return error <= 1 ? 0 : 1;
}

static bool run_in_child(const char *mode, bool is_first) {
    pid_t child = fork();
    if (child == 0)
        _exit(run_mode(mode, is_first));
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void end_with_usage(int status) {
    fputs("usage: sim_gemm [--json] [--runs N] [M N K] [QUERN_SIM...]\n"
          "Seconds of a simulated MI300X for an FP8 GEMM, for each text that QUERN_SIM may have.\n",
          status ? stderr : stdout);
    exit(status);
}

static int64_t read_number(const char *text, int64_t most) {
    char *end;
    const int64_t number = strtoll(text, &end, 10);
    if (*end || number < 1 || number > most) {
        fprintf(stderr, "sim_gemm: found %s, accepted: 1 to %ld\n", text, (long)most);
        exit(2);
    }
    return number;
}

static void read_options(int argc, char **argv) {
    static const struct option options[] = {{"json", no_argument, nullptr, 'j'},
                                            {"runs", required_argument, nullptr, 'r'},
                                            {"help", no_argument, nullptr, 'h'},
                                            {}};
    for (int c; (c = getopt_long(argc, argv, "h", options, nullptr)) != -1;)
        if (c == 'j')
            as_json = true;
        else if (c == 'r')
            runs = read_number(optarg, MAX_RUNS);
        else
            end_with_usage(c == 'h' ? 0 : 2);
}

int main(int argc, char **argv) {
    static char *usual[] = {"mfma=fast", "mfma=exact", "mfma=exact;check=all"};
    int64_t *const sizes[] = {&m, &n, &k};
    read_options(argc, argv);
    if (optind < argc && isdigit((unsigned char)*argv[optind])) {
        if (argc - optind < 3)
            end_with_usage(2);
        for (int i = 0; i < 3; i++)
            *sizes[i] = read_number(argv[optind++], INT32_MAX);
    }
    char **modes = optind < argc ? argv + optind : usual;
    const int num_modes = optind < argc ? argc - optind : 3;
    bool ok = true;
    printf("%s", as_json ? "{" : "");
    fflush(stdout);
    for (int i = 0; i < num_modes; i++)
        ok &= run_in_child(modes[i], i == 0);
    printf("%s", as_json ? "\n}\n" : "");
    return ok ? 0 : 1;
}
