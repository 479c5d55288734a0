// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: tables of measured choices of any bytes. A table that is accepted can be
// written again, with its meaning; a refusal says why.
//
// Fuzzes: libquern
#include "../../runtime/tune.h"

#include <quern/tune.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_entry(void *, const qn_tune_entry *e) {
    char text[1200], again[1200];
    const char *comment;
    qni_tune_line line;
    qni_tune_fault fault;
    if (e->fault ? !*e->fault : strlen(e->comment) > QNI_TUNE_MAX_BYTES)
        abort();
    if (e->fault)
        return;
    snprintf(text, sizeof text, "%s %s %s -> %s", e->op, e->device, e->problem, e->kernel);
    if (qni_tune_line_read(text, strlen(text), &line, &comment, &fault) != QNI_TUNE_CHOICE ||
        strcmp(qni_tune_line_text(&line, again, sizeof again), e->problem) != 0 || *comment)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int file = -1;
    char path[40];
    if (file < 0)
        file = memfd_create("tune", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (ftruncate(file, (off_t)size) != 0 || pwrite(file, data, size, 0) != (ssize_t)size ||
        qn_tune_list(path, check_entry, nullptr) != QN_OK)
        abort();
    return 0;
}
