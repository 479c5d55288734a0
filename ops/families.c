// SPDX-License-Identifier: Apache-2.0
// The table of op families, from families.def.
#include "../runtime/runtime.h"

#define QN_FAMILY(name) extern const qni_family qni_family_##name;
#include "families.def"
#undef QN_FAMILY

const qni_family *const qni_families[] = {
#define QN_FAMILY(name) &qni_family_##name,
#include "families.def"
#undef QN_FAMILY
    nullptr,
};
