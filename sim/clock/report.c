// SPDX-License-Identifier: Apache-2.0
// Results of the clock: their sum, and their text in profiles.
#include "report.h"

#include <stdlib.h>

static const char *const spent_names[SIM_NUM_SPENT] = {
#define SIM_SPENT(id, name) name,
#include "spent.def"
#undef SIM_SPENT
};

void sim_clock_add(sim_clock_result *sum, const sim_clock_result *one) {
    sum->cycles += one->cycles;
    sum->ns += one->ns;
    sum->unlimited_ns += one->unlimited_ns;
    sum->mhz = one->mhz;
    sum->watts = one->watts;
    sum->groups_run += one->groups_run;
    for (int i = 0; i < SIM_NUM_SPENT; i++)
        sum->spent[i] += one->spent[i];
#define SIM_LEVEL(member) sum->traffic.member += one->traffic.member;
#include "traffic.def"
#undef SIM_LEVEL
}

bool sim_clock_add_insts(sim_clock_result *sum, const sim_clock_result *one) {
    if (sum->num_insts < one->num_insts) {
        sim_inst_cost *insts = calloc(one->num_insts, sizeof *insts);
        if (!insts)
            return false;
        for (uint64_t i = 0; i < sum->num_insts; i++)
            insts[i] = sum->insts[i];
        free(sum->insts);
        sum->insts = insts;
        sum->num_insts = one->num_insts;
    }
    for (uint64_t i = 0; i < one->num_insts; i++) {
        if (one->insts[i].name)
            sum->insts[i].name = one->insts[i].name;
        for (int k = 0; k < SIM_NUM_SPENT; k++)
            sum->insts[i].cycles[k] += one->insts[i].cycles[k];
    }
    return true;
}

static uint64_t total_of(const sim_inst_cost *inst) {
    uint64_t total = 0;
    for (int k = 0; k < SIM_NUM_SPENT; k++)
        total += inst->cycles[k];
    return total;
}

static void write_inst(FILE *out, const sim_clock_result *r, uint64_t at) {
    const char *comma = "";
    fprintf(out, "{\"offset\": %llu, \"instruction\": \"%s\", \"simd_cycles\": {",
            4 * (unsigned long long)at, r->insts[at].name);
    for (int k = 0; k < SIM_NUM_SPENT; k++) {
        if (r->insts[at].cycles[k]) {
            fprintf(out, "%s\"%s\": %llu", comma, spent_names[k],
                    (unsigned long long)r->insts[at].cycles[k]);
            comma = ", ";
        }
    }
    fputs("}}", out);
}

/** Writes the instructions that cost most, the dearest first. */
static void write_insts(FILE *out, const sim_clock_result *r) {
    enum { MOST = 32 };
    uint64_t below = UINT64_MAX, last = UINT64_MAX;
    for (int n = 0; n < MOST; n++) {
        uint64_t best = r->num_insts, cycles = 0;
        for (uint64_t i = 0; i < r->num_insts; i++) {
            const uint64_t total = r->insts[i].name ? total_of(&r->insts[i]) : 0;
            const bool is_next = total < below || (total == below && i > last);
            if (is_next && total > cycles) {
                best = i;
                cycles = total;
            }
        }
        if (!cycles)
            return;
        fputs(n ? ",\n       " : "\n       ", out);
        write_inst(out, r, best);
        below = cycles;
        last = best;
    }
}

void sim_clock_write(FILE *out, const sim_clock_result *r) {
    fprintf(out,
            "{\"ns\": %llu, \"unlimited_ns\": %llu, \"cycles\": %llu, "
            "\"mhz\": %.0f, \"watts\": %.0f, \"workgroups_run\": %llu,\n      \"simd_cycles\": {",
            (unsigned long long)r->ns, (unsigned long long)r->unlimited_ns,
            (unsigned long long)r->cycles, r->mhz, r->watts, (unsigned long long)r->groups_run);
    for (int i = 0; i < SIM_NUM_SPENT; i++)
        fprintf(out, "%s\"%s\": %llu", i ? ", " : "", spent_names[i],
                (unsigned long long)r->spent[i]);
    fputs("},\n      \"memory\": {", out);
    const char *comma = "";
#define SIM_LEVEL(member)                                                                          \
    fprintf(out, "%s\"" #member "\": %llu", comma, (unsigned long long)r->traffic.member);         \
    comma = ", ";
#include "traffic.def"
#undef SIM_LEVEL
    fputs("},\n      \"instructions\": [", out);
    write_insts(out, r);
    fputs("]}", out);
}
