// SPDX-License-Identifier: Apache-2.0
// The latency of memory behind the vector cache: a ring through 1 MiB, which lies in the second
// level, in the memory-side cache alone, or in neither.
#include "probe.h"

#include <stdlib.h>

enum { PLACE_BYTES = 128, PLACES = 8192, RING_BYTES = PLACES * PLACE_BYTES, STEPS = 4096 };
enum { IN_L2, IN_MALL, IN_MEMORY };

/** Writes a ring that goes through all places, in an order that no prefetcher knows. */
static void write_ring(uint32_t *ring) {
    uint64_t state = 1;
    for (uint32_t i = 0; i < PLACES; i++)
        ring[i * (PLACE_BYTES / 4)] = i;
    for (uint32_t i = PLACES - 1; i > 0; i--) { // Sattolo's exchange leaves one ring
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint32_t *a = &ring[i * (PLACE_BYTES / 4)],
                 *b = &ring[(state >> 33) % i * (PLACE_BYTES / 4)], kept = *a;
        *a = *b;
        *b = kept;
    }
    for (uint32_t i = 0; i < PLACES; i++)
        ring[i * (PLACE_BYTES / 4)] *= PLACE_BYTES;
}

static qn_status put_ring(qni_probe_run *run, void *to) {
    uint32_t *ring = calloc(1, RING_BYTES);
    if (!ring)
        return QN_FAIL(QN_E_MEMORY, "qn_probe: out of memory");
    write_ring(ring);
    const qn_status st = qni_probe_put(run, to, ring, RING_BYTES);
    free(ring);
    return st;
}

/** Reads memory, each of some workgroups a part of it, a power of two. */
static qn_status read_all(qni_probe_run *run, void *bytes, uint64_t total, uint32_t groups) {
    const uint32_t own = (uint32_t)(total / groups);
    const qk_stream_args args = {.out = run->out,
                                 .bytes = bytes,
                                 .mask = own - 1,
                                 .stride = own,
                                 .pieces = own / QK_PIECE_BYTES,
                                 .xcds = 1};
    return qni_probe_launch(run, "probe_stream", "qk_probe_stream", groups, QK_STREAM_THREADS,
                            &args, sizeof args);
}

static qn_status follow(qni_probe_run *run, const void *ring, bool is_warm, qk_moment at[2]) {
    const qk_chase_args args = {
        .out = run->out, .ring = ring, .warm = is_warm ? PLACES : 0, .steps = STEPS};
    QN_TRY(qni_probe_launch(run, "probe_chase", "qk_probe_chase", 1,
                            (uint32_t)run->device->target->wave_size, &args, sizeof args));
    return qni_probe_take(run, at, 2 * sizeof *at);
}

/** Behind the ring lies as much again as drives it out of the second level, or out of the
 *  memory-side cache. */
qn_status qni_probe_chase(qni_probe_run *run, const qni_probe *probe, double *value) {
    const uint64_t mib = 1 << 20, rest = probe->place == IN_MALL     ? 15 * mib
                                         : probe->place == IN_MEMORY ? 512 * mib
                                                                     : 0;
    char *ring = nullptr;
    qk_moment at[2];
    qn_status st;
    QN_TRY_OUT(qni_probe_alloc(run, (void **)&ring, (int64_t)(RING_BYTES + rest), false));
    QN_TRY_OUT(put_ring(run, ring));
    if (probe->place == IN_MALL)
        QN_TRY_OUT(read_all(run, ring, RING_BYTES + rest, 1));
    if (probe->place == IN_MEMORY)
        QN_TRY_OUT(read_all(run, ring + RING_BYTES, rest, 256));
    QN_TRY_OUT(follow(run, ring, probe->place == IN_L2, at));
    *value = probe->place == IN_L2 ? (double)(at[1].cycles - at[0].cycles) / (double)STEPS
                                   : (double)(at[1].ticks - at[0].ticks) * 10 / (double)STEPS;
out:
    qn_free(run->device, ring);
    return st;
}
