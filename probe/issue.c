// SPDX-License-Identifier: Apache-2.0
// The cycles of instructions, by the difference of two loops (issue_gpu.c).
#include "probe.h"

enum { BYTES = 65536, LOOPS = 32, OTHER_TIMES = 16, MOST_WAVES = 8 };

/** Returns the cycles from the first wave's beginning of a loop to the last one's end. */
static double cycles_of_loop(const qk_moment *at, uint32_t waves, uint32_t step) {
    uint64_t begin = at[0].cycles, end = at[1].cycles;
    for (uint32_t i = step; i < waves; i += step) {
        begin = at[4 * i].cycles < begin ? at[4 * i].cycles : begin;
        end = at[4 * i + 1].cycles > end ? at[4 * i + 1].cycles : end;
    }
    return (double)(end - begin);
}

/** Returns the cycles of a line of bodies_abi.def. */
static double cycles_of(const qk_moment *at, uint32_t waves, uint32_t step) {
    return (cycles_of_loop(at + 2, waves, step) - cycles_of_loop(at, waves, step)) /
           (double)(QK_REPEATS * LOOPS);
}

static qn_status measure(qni_probe_run *run, const qni_term *term, const void *bytes,
                         double *cycles) {
    const uint32_t waves = term->waves ? term->waves : 1;
    const qk_issue_args args = {.out = run->out,
                                .bytes = bytes,
                                .body = term->body,
                                .loops = LOOPS,
                                .other = term->other,
                                .other_loops = LOOPS * OTHER_TIMES,
                                .first_other = term->first_other ? term->first_other : waves,
                                .turns = 2,
                                .on_one_simd = term->on_one_simd};
    qk_moment at[4 * MOST_WAVES];
    QN_TRY(qni_probe_launch(run, "probe_issue", "qk_probe_issue", 1,
                            waves * (uint32_t)run->device->target->wave_size, &args, sizeof args));
    QN_TRY(qni_probe_take(run, at, sizeof at));
    *cycles = cycles_of(at, args.first_other, term->on_one_simd ? QK_SIMDS : 1);
    return QN_OK;
}

qn_status qni_probe_issue(qni_probe_run *run, const qni_probe *probe, double *value) {
    void *bytes = nullptr;
    double sum = 0;
    qn_status st;
    QN_TRY_OUT(qni_probe_alloc(run, &bytes, BYTES, true));
    for (int i = 0; i < QNI_MAX_TERMS && (i == 0 || probe->terms[i].weight != 0); i++) {
        const double weight = probe->terms[i].weight;
        double cycles;
        QN_TRY_OUT(measure(run, &probe->terms[i], bytes, &cycles));
        sum += cycles * (weight != 0 ? weight : 1);
    }
    *value = probe->bytes != 0 ? probe->bytes / sum : sum;
out:
    qn_free(run->device, bytes);
    return st;
}
