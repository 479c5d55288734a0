// SPDX-License-Identifier: Apache-2.0
// Results of the clock: their sum, and their text in profiles.
#include "report.h"

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

void sim_clock_write(FILE *out, const sim_clock_result *r) {
    static const char *const names[SIM_NUM_SPENT] = {
#define SIM_SPENT(id, name) name,
#include "spent.def"
#undef SIM_SPENT
    };
    fprintf(out,
            "{\"ns\": %llu, \"unlimited_ns\": %llu, \"cycles\": %llu, "
            "\"mhz\": %.0f, \"watts\": %.0f, \"workgroups_run\": %llu,\n      \"simd_cycles\": {",
            (unsigned long long)r->ns, (unsigned long long)r->unlimited_ns,
            (unsigned long long)r->cycles, r->mhz, r->watts, (unsigned long long)r->groups_run);
    for (int i = 0; i < SIM_NUM_SPENT; i++)
        fprintf(out, "%s\"%s\": %llu", i ? ", " : "", names[i], (unsigned long long)r->spent[i]);
    fputs("},\n      \"memory\": {", out);
    const char *comma = "";
#define SIM_LEVEL(member)                                                                          \
    fprintf(out, "%s\"" #member "\": %llu", comma, (unsigned long long)r->traffic.member);         \
    comma = ", ";
#include "traffic.def"
#undef SIM_LEVEL
    fputs("}}", out);
}
