// SPDX-License-Identifier: Apache-2.0
// Which lanes LDS serves together, and how many banks it has, by patterns of addresses.
//
// Lanes that meet in one bank with different words cost a cycle for each word, in each group of
// lanes that is served at once. Two words that many lanes ask for make every group take two cycles.
// If two lanes ask for a third word of that bank, their groups take one cycle more: one group, if
// they are in the same one, else two.
#include "probe.h"

#include <stdlib.h>
#include <string.h>

enum { LANES = QK_PHASE_LANES, PAIRS = LANES * (LANES - 1) / 2 };
enum { PLAIN, ONE, FIRST_PAIR, PATTERNS = FIRST_PAIR + PAIRS };
enum { ROW_BYTES = 256, STRIDES = 8 }; // a row is a multiple of all banks

/** Measures the patterns, in cycles of a wave. */
static qn_status measure(qni_probe_run *run, qk_access access, const uint32_t *address,
                         uint32_t patterns, uint32_t *cycles) {
    const int64_t bytes = (int64_t)patterns * LANES * (int64_t)sizeof *address;
    void *there = nullptr;
    qn_status st;
    QN_TRY_OUT(qni_probe_alloc(run, &there, bytes, false));
    QN_TRY_OUT(qni_probe_put(run, there, address, bytes));
    const qk_phase_args args = {
        .out = run->out, .address = there, .patterns = patterns, .access = access};
    QN_TRY_OUT(qni_probe_launch(run, "probe_phase", "qk_probe_phase", 1, 256, &args, sizeof args));
    QN_TRY_OUT(qni_probe_take(run, cycles, patterns * (int64_t)sizeof *cycles));
out:
    qn_free(run->device, there);
    return st;
}

static void write_patterns(uint32_t *address) {
    for (uint32_t p = 0; p < PATTERNS; p++)
        for (uint32_t lane = 0; lane < LANES; lane++)
            address[p * LANES + lane] = lane % 2 * ROW_BYTES;
    address[ONE * LANES] = 2 * ROW_BYTES;
    uint32_t *at = address + FIRST_PAIR * LANES;
    for (uint32_t i = 0; i < LANES; i++)
        for (uint32_t k = i + 1; k < LANES; k++, at += LANES)
            at[i] = at[k] = 2 * ROW_BYTES;
}

/** Writes each lane's group, the number of its first lane. Returns the number of groups. */
static int find_groups(const uint32_t *cycles, uint8_t group[LANES]) {
    const double step = (double)cycles[ONE] - cycles[PLAIN], most = cycles[ONE] + step / 2;
    const uint32_t *pair = cycles + FIRST_PAIR;
    int count = 0;
    for (uint8_t i = 0; i < LANES; i++)
        group[i] = i;
    for (uint32_t i = 0; i < LANES; i++) {
        count += group[i] == i;
        for (uint32_t k = i + 1; k < LANES; k++, pair++)
            if (*pair < most && group[i] == i && group[k] == k)
                group[k] = (uint8_t)i;
    }
    return count;
}

/** Writes the groups as runs of lanes: "0-3,20-23 4-7,16-19". */
static void write_groups(const uint8_t group[LANES], char *text, size_t room) {
    size_t used = 0;
    for (uint32_t first = 0; first < LANES; first++) {
        const char *before = used ? " " : "";
        for (uint32_t i = 0; i < LANES && group[first] == first && used < room; i++) {
            uint32_t end = i;
            while (end < LANES && group[end] == first)
                end++;
            if (end > i + 1)
                used += (size_t)snprintf(text + used, room - used, "%s%u-%u", before, i, end - 1);
            else if (end > i)
                used += (size_t)snprintf(text + used, room - used, "%s%u", before, i);
            before = end > i ? "," : before;
            i = end > i ? end : i;
        }
    }
}

qn_status qni_probe_phase(qni_probe_run *run, const qni_probe *probe, double *value) {
    uint32_t *address = malloc(sizeof(uint32_t) * PATTERNS * LANES);
    uint32_t *cycles = malloc(sizeof(uint32_t) * PATTERNS);
    uint8_t group[LANES];
    qn_status st = QN_E_MEMORY;
    if (!address || !cycles) {
        QN_FAIL(QN_E_MEMORY, "qn_probe: out of memory");
        goto out;
    }
    write_patterns(address);
    QN_TRY_OUT(measure(run, (qk_access)probe->place, address, PATTERNS, cycles));
    *value = find_groups(cycles, group);
    write_groups(group, run->detail, sizeof run->detail);
out:
    free(address);
    free(cycles);
    return st;
}

/** Lanes 1, 2, 4 … words apart: from as many words on as there are banks, all lanes meet in one. */
qn_status qni_probe_banks(qni_probe_run *run, const qni_probe *, double *value) {
    uint32_t address[STRIDES * LANES], cycles[STRIDES];
    for (uint32_t p = 0; p < STRIDES; p++)
        for (uint32_t lane = 0; lane < LANES; lane++)
            address[p * LANES + lane] = lane * 4 << p;
    QN_TRY(measure(run, QK_READ_B32, address, STRIDES, cycles));
    uint32_t p = 0;
    while (cycles[p] < 0.95 * cycles[STRIDES - 1])
        p++;
    *value = 1 << p;
    return QN_OK;
}
