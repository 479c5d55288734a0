// SPDX-License-Identifier: Apache-2.0
// The safetensors reader on arbitrary bytes: it accepts or refuses, and a header that it accepts
// can be written again.
//
// Fuzzes: cli/checkpoint/safetensors.c cli/error.c cli/json.c cli/output.c
#include "../../cli/checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** Reads the first and the last byte of every tensor, as a user of the header would. */
static void touch(const st_header *header, const uint8_t *data) {
    volatile uint8_t sink = 0;
    for (int64_t i = 0; i < header->count; i++) {
        const st_tensor *t = &header->tensors[i];
        const uint8_t *bytes = data + header->data_offset;
        if (t->end > t->begin)
            sink = (uint8_t)(sink + bytes[t->begin] + bytes[t->end - 1]);
        if (st_find(header, t->name) != t)
            abort();
    }
}

/** Lays the tensors out anew; the reader must accept the header made of them. */
static void rewrite(const st_header *header) {
    st_tensor **order = cli_alloc((size_t)header->count * sizeof *order);
    for (int64_t i = 0; i < header->count; i++)
        order[i] = &header->tensors[i];
    int64_t bytes, data_bytes = st_layout(order, header->count);
    char *text = st_header_make(order, header->count, header->metadata, &bytes);
    char *file = calloc(1, (size_t)(bytes + data_bytes));
    memcpy(file, text, (size_t)bytes);
    st_header again;
    if (st_parse(&again, "again", file, bytes + data_bytes) != QN_OK ||
        again.count != header->count)
        abort();
    st_free(&again);
    free(file);
    free(text);
    free(order);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    st_header header;
    if (st_parse(&header, "fuzzed", data, (int64_t)size) == QN_OK) {
        touch(&header, data);
        rewrite(&header);
        st_free(&header);
    } else if (!*cli_error()) {
        abort(); // a refusal says why
    }
    return 0;
}
