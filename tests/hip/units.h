// SPDX-License-Identifier: Apache-2.0
// What units_a.hip, units_b.hip and units_c.hip share.
#ifndef UNITS_H
#define UNITS_H

#include "mini.h"

template <int N> __global__ void in_both(int *out) {
    *out = N;
}

int run_b();

#endif
