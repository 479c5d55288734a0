// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: DWARF line tables of any bytes. The first byte says where the strings begin,
// the second which address is asked for.
//
// Fuzzes: sim/object/lines.c
#include "../../sim/object/lines.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    const size_t left = size - 2, split = left * data[0] / 255;
    sim_source_line line;
    sim_debug debug = {.line = {data + 2, split},
                       .line_str = {data + 2 + split, left - split},
                       .str = {data + 2 + split, left - split}};
    if (sim_line_find(&debug, 0x1000 + data[1], &line) &&
        (!line.line || !*line.file || !memchr(line.file, 0, sizeof line.file))) {
        abort();
    }
    return 0;
}
