// SPDX-License-Identifier: Apache-2.0
// What the probes' kernels and their launch code share.
#ifndef QK_PROBE_ABI_H
#define QK_PROBE_ABI_H

#include <stdint.h>

/** Instructions whose time is taken: the lines of bodies_abi.def. */
typedef enum qk_body {
#define QK_BODY(name, before, body) QK_BODY_##name,
#define QK_BODY_CDNA3(name, before, body) QK_BODY_##name,
#define QK_BODY_CDNA4(name, before, body) QK_BODY_##name,
#include "bodies_abi.def"
#undef QK_BODY
#undef QK_BODY_CDNA3
#undef QK_BODY_CDNA4
    QK_NUM_BODIES
} qk_body;

enum { QK_SIMDS = 4 };   // of a compute unit, among which a workgroup's waves go in turn
enum { QK_REPEATS = 8 }; // of the body in a turn of the first loop; the second has twice as many
enum { QK_LDS_BYTES = 32768 }; // that the kernels use
enum { QK_PHASE_LANES = 64, QK_PHASE_READS = 16 };

/** Moments of one wave, of the shader clock and of the clock that no load changes. */
typedef struct qk_moment {
    uint64_t cycles, ticks;
} qk_moment;

typedef struct qk_issue_args {
    qk_moment *out;       // [waves, 4] before and behind each of the two loops, of workgroup 0
    const uint8_t *bytes; // [65536] what loads read
    uint32_t body, loops; // of the workgroup's first waves
    uint32_t other, other_loops, first_other; // of its waves from first_other on
    uint32_t turns;                           // of all this; the last one counts
    uint32_t on_one_simd;                     // 1: waves that are not on the first wave's SIMD end
} qk_issue_args;

typedef struct qk_chase_args {
    qk_moment *out;       // [3] before and behind the steps; cycles of the last: where they ended
    const uint8_t *ring;  // at each place the offset of the next one
    uint32_t warm, steps; // steps before the time is taken, and in it
} qk_chase_args;

typedef struct qk_stream_args {
    qk_moment *out; // [2] of workgroup 0
    uint8_t *bytes;
    uint32_t mask;   // bytes of a workgroup's memory, a power of two, less 1
    uint32_t stride; // from a workgroup's memory to the next one's; 0: all have the same
    uint32_t pieces; // of each workgroup
    uint32_t xcds;   // among which workgroups go in turn; memory of an XCD's lies together
    uint32_t writes;
} qk_stream_args;

enum { QK_STREAM_THREADS = 1024, QK_PIECE_BYTES = 8192 };

typedef struct qk_phase_args {
    uint32_t *out;           // [patterns] cycles of wave 0
    const uint32_t *address; // [patterns, QK_PHASE_LANES] in LDS
    uint32_t patterns, access;
} qk_phase_args;

typedef enum qk_access {
    QK_READ_B32,
    QK_READ_B64,
    QK_READ_B128,
    QK_WRITE_B32,
    QK_WRITE_B64,
    QK_WRITE_B128
} qk_access;

typedef struct qk_launch_args {
    uint64_t *out; // [workgroups, 2] cycles of the first and the last instruction; null: nothing
    uint32_t naps; // of s_sleep
} qk_launch_args;

#endif
