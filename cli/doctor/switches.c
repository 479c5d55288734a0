// SPDX-License-Identifier: Apache-2.0
// Environment variables that hurt, or that somebody may think that quern follows.
#include "doctor.h"

#include <stdlib.h>
#include <string.h>

typedef struct switch_rule {
    const char *name;
    const char *harmless; // a value that does nothing; null: any value counts
    doctor_level level;
    const char *says;
} switch_rule;

static const switch_rule rules[] = {
    {"HSA_OVERRIDE_GFX_VERSION", nullptr, DOCTOR_TROUBLE,
     "ROCm takes the card for another one, whose code may fault or compute wrongly; quern has "
     "kernels for every RDNA3 and RDNA4 card and needs no override"},
    {"AMD_SERIALIZE_KERNEL", "0", DOCTOR_NOTE, "every launch waits for its kernel: slow"},
    {"AMD_SERIALIZE_COPY", "0", DOCTOR_NOTE, "every copy waits: slow"},
    {"HIP_LAUNCH_BLOCKING", "0", DOCTOR_NOTE, "every launch waits for its kernel: slow"},
    {"CUDA_LAUNCH_BLOCKING", "0", DOCTOR_NOTE, "every launch waits for its kernel: slow"},
    {"HSA_ENABLE_SDMA", "1", DOCTOR_NOTE, "copies take compute units from kernels"},
    {"PYTORCH_ROCM_ARCH", nullptr, DOCTOR_NOTE,
     "read when PyTorch is built; quern and a built PyTorch ignore it"},
    {"QUERN_NO_JIT", "0", DOCTOR_NOTE, "kernels that are not built in are refused"},
    {"QUERN_DISABLE", nullptr, DOCTOR_NOTE, "these kernels or backends are never chosen"},
    {"QUERN_FORCE", nullptr, DOCTOR_NOTE, "these ops run one kernel or fail"},
};

static void look_at_rule(doctor *d, const switch_rule *rule) {
    char remedy[96];
    const char *value = getenv(rule->name);
    if (!value || !*value || (rule->harmless && strcmp(value, rule->harmless) == 0))
        return;
    snprintf(remedy, sizeof remedy, "unset %s", rule->name);
    doctor_add(d, rule->level == DOCTOR_TROUBLE && !d->num_amd ? DOCTOR_NOTE : rule->level,
               "environment", rule->name, remedy, "\"%.64s\": %s", value, rule->says);
}

/** A list of devices hides those that it does not name; an empty one, and one that begins with -1,
 *  hides all. */
static void look_at_visible(doctor *d, const char *name) {
    char remedy[96];
    const char *value = getenv(name);
    if (!value)
        return;
    snprintf(remedy, sizeof remedy, "unset %s, or name the cards", name);
    const bool hides_all = !*value || strncmp(value, "-1", 2) == 0;
    const bool has_cards = *name == 'C' ? d->num_nvidia : d->num_amd;
    doctor_add(d, hides_all && has_cards ? DOCTOR_TROUBLE : DOCTOR_NOTE,
               hides_all ? "hidden-cards" : "visible-cards", name, remedy,
               hides_all ? "\"%.64s\" hides every card" : "\"%.64s\": other cards are hidden",
               value);
}

void doctor_switches(doctor *d) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        look_at_rule(d, &rules[i]);
    look_at_visible(d, "HIP_VISIBLE_DEVICES");
    look_at_visible(d, "ROCR_VISIBLE_DEVICES");
    look_at_visible(d, "CUDA_VISIBLE_DEVICES");
}
