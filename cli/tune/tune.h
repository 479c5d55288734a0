// SPDX-License-Identifier: Apache-2.0
// What the files of quern tune share: the problems of a command, what was measured of them, and the
// file that keeps it.
#ifndef CLI_TUNE_H
#define CLI_TUNE_H

#include "../bench/call.h"

enum { TUNE_MAX_LIST = 64, TUNE_MAX_PROBLEMS = 4096, TUNE_MAX_KERNELS = 64 };

// ---- what the command line asks for (tune.c)

typedef struct tune_options {
    const char *spec, *shapes, *model, *tokens, *seq, *dtype, *output, *clock;
    int64_t tp, rounds, kernels;
    bool has_ranges, force, as_json, is_dry;
} tune_options;

// ---- problems (problems.c)

typedef enum tune_op {
    TUNE_GEMM,
    TUNE_ATTENTION,
    TUNE_MLA,
    TUNE_NORM,
    TUNE_ACTIVATION,
    TUNE_QUANTIZE,
    TUNE_OPS
} tune_op;

extern const char *const tune_op_names[TUNE_OPS + 1]; // null ends them

/** Attention of a layer. */
typedef struct tune_heads {
    int64_t qo_heads, kv_heads, dim;
} tune_heads;

/** A problem. Those of a group differ in their batch alone, and follow each other. */
typedef struct tune_problem {
    tune_op op;
    int group;
    union {
        gemm_shape gemm;
        attention_shape attention;
        mla_shape mla;
        struct {
            int number; // of the op, in bench/rows.c
            rows_shape shape;
        } rows;
        struct {
            rows_shape shape;
            int64_t block_rows;
        } quantize;
    };
    char text[96];
} tune_problem;

typedef struct tune_problems {
    tune_problem *list; // the owner frees it
    int count, num_groups;
    int64_t tokens[TUNE_MAX_LIST], seq[TUNE_MAX_LIST];
    int num_tokens, num_seq;
    bool has_ranges; // a line is also for fewer tokens, down to the next number that is measured
} tune_problems;

/** Adds a linear layer's products for each number of tokens, unless the layer is there already. */
qn_status tune_add_gemm(tune_problems *p, int64_t n, int64_t k, DLDataType dtype);
/** Adds a prompt and a step of decoding for each length. */
qn_status tune_add_attention(tune_problems *p, const tune_heads *heads);
/** Adds a step of decoding for each length. */
qn_status tune_add_mla(tune_problems *p, int64_t heads);
/** Adds a row op for each number of tokens, by its name in bench/rows.c. */
qn_status tune_add_rows(tune_problems *p, tune_op family, const char *name, int64_t dim);
/** Adds quantisation of rows of activations. */
qn_status tune_add_quantize(tune_problems *p, int64_t dim);
/** Returns the least number of tokens that a problem's line is for; *name becomes the table's name
 *  for that number. 0: the line is for the problem alone. */
int64_t tune_least_tokens(const tune_problems *p, int problem, const char **name);
/** Makes the problems that the options ask for of the ops (a bit each). */
qn_status tune_problems_make(tune_problems *out, const tune_options *o, unsigned ops,
                             const cli_device *device);

// ---- models (model.c)

/** Adds the layers of a model that a config.json in the style of transformers describes. fp8: what
 *  a product of FP8 takes on the device; dtype: of all products; null: as the model says. */
qn_status tune_add_model(tune_problems *p, const tune_options *o, unsigned ops, DLDataType fp8,
                         const DLDataType *dtype);

// ---- what was measured (trial.c)

typedef struct tune_kernel {
    char name[64];
    uint32_t bits;
    int64_t ns, noise_ns; // 0: not timed
    char refused[200];    // why it may not be chosen; "": it may
} tune_kernel;

/** Why a kernel that --kernels leaves out may not be chosen. */
#define TUNE_NOT_TRIED "not tried, as others cost less"

/** What is known of a problem. */
typedef struct tune_record {
    char op[32], problem[400], batch[160]; // as the table names it; op "": it cannot run here
    char date[24];
    char why[200]; // why it cannot run
    tune_kernel kernels[TUNE_MAX_KERNELS];
    int num_kernels; // the first is the one that costs choose
} tune_record;

/** Steps of the progress bar for a problem. */
constexpr int64_t TUNE_STEPS = 1000;

typedef struct tune_trying {
    int rounds, kernels; // kernels: only so many are tried, the cheapest
    bool is_dry;         // kernels are only listed
    bool is_sample;      // the simulator runs some workgroups alone
} tune_trying;

/** Lists the kernels that can run a problem, compares their results with the first one's, and times
 *  them beside it. Messages are left with the library, but that of a signal. */
qn_status tune_try(tune_record *out, cli_device *device, const tune_problem *problem,
                   const tune_trying *options);

// ---- agreement of results (agree.c)

/** A call's results in host memory. */
typedef struct tune_result {
    void *data[BENCH_MAX_OUTS];
} tune_result;

/** Makes the tensors ready for a run: what it writes becomes NaN, what it changes as it was. */
qn_status tune_prepare(const bench_call *call);
/** Fetches what the call wrote. The caller frees it, also after an error. */
qn_status tune_fetch(tune_result *out, const bench_call *call);
void tune_result_free(tune_result *r);
/** Returns whether a kernel's result agrees with that of the usual kernel, within what both may be
 *  off by the op's definition, or in every bit; if not, writes where and how to why. Where
 *  is_sample, what neither wrote does not count. */
bool tune_agrees(const bench_call *call, const tune_result *usual, const tune_result *other,
                 bool in_bits, bool is_sample, char *why, size_t room);

// ---- the file (record.c, choose.c)

typedef struct tune_file {
    char *path, *command, *device, *library;
    tune_record *records; // of the first `count` problems
    int count;
} tune_file;

/** Returns the table's text, which the caller frees. */
char *tune_file_text(const tune_file *f, const tune_problems *p, const char *arch);
/** Reads what an earlier run of the same command has measured; nothing if there is no file. Errors:
 *  QN_E_INVALID (the file was written by another command, for another device or by another version,
 *  or not by quern tune), QN_E_IO. */
qn_status tune_file_read(tune_file *f, const tune_problems *p, const char *arch);
void tune_file_free(tune_file *f);

/** Returns the kernel of a problem: that of costs, by index 0, or a faster one. *for_all tells
 *  whether all batches have the kernel, as one of other bits must. */
int tune_choose(const tune_file *f, const tune_problems *p, int problem, bool *for_all);
/** Returns the kernel that all batches like the problem's should have; null: each its own. */
const char *tune_choose_for_all(const tune_file *f, const tune_problems *p, int problem);
/** Returns whether no later problem shares the problem's line, which is for all batches or not. */
bool tune_is_last(const tune_file *f, int problem, bool for_all);

// ---- path, list, verify (table.c)

/** Carries out an action on a table; `words` are the action and perhaps a file. */
qn_status tune_table(int count, char **words, bool as_json);

#endif
