// SPDX-License-Identifier: Apache-2.0
// The .npy reader on arbitrary bytes: data that it accepts lie inside the file, and a refusal says
// why.
// Fuzzes: cli/checkpoint/npy.c cli/file.c cli/map.c cli/temp.c cli/error.c cli/output.c
#include "../../cli/checkpoint/npy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    npy array = {0};
    if (npy_parse(&array, "fuzzed", data, (int64_t)size) != QN_OK) {
        if (!*cli_error())
            abort();
        return 0;
    }
    const uint8_t *first = array.data;
    const int64_t bytes = array.rows * array.cols * array.dtype.bits / 8;
    if (first < data || bytes < 0 || bytes != data + size - first)
        abort();
    volatile uint8_t sink = 0;
    if (bytes)
        sink = (uint8_t)(sink + first[0] + first[bytes - 1]);
    return 0;
}
