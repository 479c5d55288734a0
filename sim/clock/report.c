// SPDX-License-Identifier: Apache-2.0
// Results of the clock: their sum, and their text in profiles.
#include "report.h"

#include <stdlib.h>

const char *sim_spent_name(sim_spent kind) {
    static const char *const names[SIM_NUM_SPENT] = {
#define SIM_SPENT(id, name) name,
#include "spent.def"
#undef SIM_SPENT
    };
    return names[kind];
}

void sim_clock_add(sim_clock_result *sum, const sim_clock_result *one) {
    sum->cycles += one->cycles;
    sum->ns += one->ns;
    sum->unlimited_ns += one->unlimited_ns;
    sum->mhz = one->mhz;
    sum->watts = one->watts;
    sum->groups += one->groups;
    sum->groups_run += one->groups_run;
    sum->part_run = one->part_run;
    sum->spread = one->spread;
    sum->wave_cycles += one->wave_cycles;
    sum->matrix_ops += one->matrix_ops;
    sum->matrix_cycles += one->matrix_cycles;
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
        sum->insts[i].issues += one->insts[i].issues;
        for (int k = 0; k < SIM_NUM_SPENT; k++)
            sum->insts[i].cycles[k] += one->insts[i].cycles[k];
    }
    return true;
}

void sim_clock_write_inst(FILE *out, const sim_inst_cost *inst) {
    const char *comma = "";
    fputs("\"simd_cycles\": {", out);
    for (int k = 0; k < SIM_NUM_SPENT; k++) {
        if (inst->cycles[k]) {
            fprintf(out, "%s\"%s\": %llu", comma, sim_spent_name((sim_spent)k),
                    (unsigned long long)inst->cycles[k]);
            comma = ", ";
        }
    }
    fprintf(out, "}, \"issues\": %llu", (unsigned long long)inst->issues);
}

void sim_clock_write(FILE *out, const sim_clock_result *r) {
    fprintf(out,
            "\"ns\": %llu, \"unlimited_ns\": %llu, \"cycles\": %llu, \"mhz\": %.0f, "
            "\"watts\": %.0f, \"workgroups\": %llu, \"workgroups_run\": %llu,\n      "
            "\"part_run\": %.3f, \"spread\": %.4f, "
            "\"wave_cycles\": %llu, \"matrix_ops\": %llu, \"matrix_cycles\": %llu,\n      "
            "\"simd_cycles\": {",
            (unsigned long long)r->ns, (unsigned long long)r->unlimited_ns,
            (unsigned long long)r->cycles, r->mhz, r->watts, (unsigned long long)r->groups,
            (unsigned long long)r->groups_run, r->part_run, r->spread,
            (unsigned long long)r->wave_cycles, (unsigned long long)r->matrix_ops,
            (unsigned long long)r->matrix_cycles);
    for (int i = 0; i < SIM_NUM_SPENT; i++)
        fprintf(out, "%s\"%s\": %llu", i ? ", " : "", sim_spent_name((sim_spent)i),
                (unsigned long long)r->spent[i]);
    fputs("},\n      \"memory\": {", out);
    const char *comma = "";
#define SIM_LEVEL(member)                                                                          \
    fprintf(out, "%s\"" #member "\": %llu", comma, (unsigned long long)r->traffic.member);         \
    comma = ", ";
#include "traffic.def"
#undef SIM_LEVEL
    fputs("}", out);
}
