// SPDX-License-Identifier: Apache-2.0
// What fuzzers that make something of an input's bytes take from them, one by one.
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <stdint.h>

typedef struct input {
    const uint8_t *at, *end;
} input;

static inline uint32_t take(input *in, uint32_t below) {
    return in->at < in->end ? *in->at++ % below : 0;
}

static inline bool take_bool(input *in) {
    return take(in, 2);
}

/** Takes one entry of a list. */
#define TAKE_ONE(in, list) (list)[take(in, sizeof(list) / sizeof *(list))]

#endif
