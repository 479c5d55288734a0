// SPDX-License-Identifier: Apache-2.0
// What bench's files share: the options, and what was measured.
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "measure.h"
#include "rows.h"

typedef struct bench_options {
    const char *spec, *peer, *python, *plot_path, *m_list, *seq_list, *prompts, *clock;
    int64_t runs, n, k, heads;
    rows_shape shape;
    bool as_json, force;
} bench_options;

enum { MAX_RESULTS = 80, MAX_LEFT_OUT = 32 };

/** An op that nobody asked for by name and that the device has no kernel for. */
typedef struct left_out {
    const char *op;
    char why[400];
} left_out;

typedef struct bench_report {
    cli_device device;
    cli_limits limits;
    measurement results[MAX_RESULTS];
    int count;
    left_out left_out[MAX_LEFT_OUT];
    int num_left_out;
} bench_report;

double bench_gigabytes(const measurement *r); // in GB/s
/** Returns the op's speed over the best possible, the copy's or the limit's; 0 if there is nothing
 *  to compare with. */
double bench_share(const measurement *r);
/** Returns what bench_share compares with: "copy", "memory", "arithmetic"; "-" for nothing. */
const char *bench_share_of(const measurement *r);

/** Draws a bar for each result, or lines if all results are attention of prompts of several
 *  lengths. The caller frees the text. (bench_plot.c) */
char *bench_draw(const bench_report *report);

/** Makes a script of bench/ time gemm or attention beside another library's in one process.
 *  (bench_peer.c) */
qn_status bench_run_peer(const bench_options *options, bool is_attention);

#endif
