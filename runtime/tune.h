// SPDX-License-Identifier: Apache-2.0
// The table of measured choices: lines that say which kernel runs for which problems on which
// device. docs/runtime.md has its format.
#ifndef QNI_TUNE_H
#define QNI_TUNE_H

#include "runtime.h"

enum {
    QNI_TUNE_MAX_BYTES = 1024, // of a line
    QNI_TUNE_MAX_LINES = 10000,
    QNI_TUNE_MAX_VALUES = 1 + QNI_MAX_KEYS // the device's compute units, then the op's keys
};

/** From low to high. */
typedef struct qni_tune_range {
    int32_t value; // which: 0 is the device's compute units, 1 the op's first key
    int64_t low, high;
} qni_tune_range;

/** A line that chooses. */
typedef struct qni_tune_line {
    const qni_op *op;
    const qni_variant *variant;
    char device[24]; // qn_device_info.arch
    int number;      // in the file, from 1
    int next;        // of the same op and device, behind it in the file; 0: none
    bool is_of_batch;
    int num_ranges;
    qni_tune_range ranges[QNI_TUNE_MAX_VALUES]; // by rising value
} qni_tune_line;

typedef struct qni_tune_fault {
    char text[512];
} qni_tune_fault;

typedef enum qni_tune_kind {
    QNI_TUNE_NOTHING, // blank, or a comment
    QNI_TUNE_CHOICE,
    QNI_TUNE_REFUSED
} qni_tune_kind;

/** Reads a line of the file, without its end, and returns what the line is. Writes a choice to
 *  *line and the begin of its comment, which ends where the text does, to *comment; or the reason
 *  for which the line is refused to *fault. In tune_line.c. */
qni_tune_kind qni_tune_line_read(const char *text, size_t length, qni_tune_line *line,
                                 const char **comment, qni_tune_fault *fault);
/** Writes the problems that a line is for to buf: "n=4096 k=7168 m=1..8". Returns buf. */
const char *qni_tune_line_text(const qni_tune_line *line, char *buf, size_t room);
/** Returns whether `first` matches every problem that `second` matches. */
bool qni_tune_line_covers(const qni_tune_line *first, const qni_tune_line *second);

// ---- the table that calls go by: QUERN_TUNE's, else shipped.tune (tune.c)

/** The lines that matter to a problem; null: none. `all` is the first matching line for batches of
 *  every size, `batch` the first matching line that names a size, if it stands before `all`. */
typedef struct qni_tuned {
    const qni_tune_line *batch, *all;
    bool has_lines; // for this op on this device
} qni_tuned;

/** Reads the table on the first call. Errors: QN_E_INVALID, with the place of the refused line;
 *  QN_E_IO, QN_E_MEMORY. After an error the table is empty. */
qn_status qni_tune_check(void);
/** Finds the table's lines for a problem of the op on the device. */
qni_tuned qni_tune_find(const qni_op *op, const qn_device *device, const void *problem);
/** Returns the table's path, "shipped.tune" for quern's own; null: calls go by none. */
const char *qni_tune_file(void);
/** Writes a problem to buf as a line of the table names it: "units=304 n=4096 k=7168 m=8". Returns
 *  buf. */
const char *qni_tune_describe(const qni_op *op, const qn_device *device, const void *problem,
                              char *buf, size_t room);
/** Does the same with those names alone that are the batch's, or that are not. */
const char *qni_tune_describe_part(const qni_op *op, const qn_device *device, const void *problem,
                                   bool is_of_batch, char *buf, size_t room);

// ---- what qn_tune_watch and qn_tune_force ask of this thread's calls (tune_watch.c)

/** Whether any thread has asked for anything yet; if not, a choice need not call the functions
 *  below. */
extern _Atomic bool qni_tune_is_asked;
/** Returns the kernel that the op's calls must run; null: any. */
const qni_variant *qni_tune_forced(const qni_op *op);
/** Reports the choice if somebody watches. Errors: QN_E_UNSUPPORTED (the call shall end). */
qn_status qni_tune_report(const qni_op *op, const qn_device *device, const void *problem);

#endif
