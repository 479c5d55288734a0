// SPDX-License-Identifier: Apache-2.0
// Managed variables of modules that a program loads: the code has a pointer by the variable's name,
// and the first value by that name with ".managed" behind it. Those of the program's own code are
// registered instead (registry.c).
#include "../object/entries.h"
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

struct sim_module_managed {
    struct sim_module_managed *next;
    void *memory;
    uint64_t bytes;
    char name[]; // of the pointer
};

/** Makes one variable, whose first value is at `addr`, and lets the pointer point to it. */
static bool make(hipModule_t module, const char *name, size_t length, uint64_t addr,
                 uint64_t bytes) {
    enum { GLOBAL = 1 };
    uint64_t pointer, pointer_bytes;
    struct sim_module_managed *m = calloc(1, sizeof *m + length + 1);
    if (!m || sim_managed_alloc(&m->memory, bytes, GLOBAL) != hipSuccess) {
        free(m);
        return false;
    }
    memcpy(m->name, name, length);
    m->bytes = bytes;
    m->next = module->managed;
    module->managed = m;
    const void *first = sim_memory_host(sim_hip.memory, addr, bytes);
    void *at = sim_object_global(module->object, m->name, &pointer, &pointer_bytes)
                   ? sim_memory_host(sim_hip.memory, pointer, sizeof m->memory)
                   : nullptr;
    if (first)
        memcpy(m->memory, first, bytes);
    if (at)
        memcpy(at, &m->memory, sizeof m->memory);
    return true;
}

bool sim_module_make_managed(hipModule_t module) {
    static const char suffix[] = ".managed";
    const char *name;
    bool ok = true;
    for (size_t i = 0; ok && (name = sim_object_global_at(module->object, i)); i++) {
        uint64_t addr, bytes;
        const size_t length = strlen(name);
        if (length < sizeof suffix || strcmp(name + length - (sizeof suffix - 1), suffix) != 0)
            continue;
        if (sim_object_global(module->object, name, &addr, &bytes) && bytes)
            ok = make(module, name, length - (sizeof suffix - 1), addr, bytes);
    }
    return ok;
}

void sim_module_free_managed(hipModule_t module) {
    for (struct sim_module_managed *m = module->managed, *next; m; m = next) {
        next = m->next;
        sim_managed_forget((uintptr_t)m->memory);
        sim_memory_free(sim_hip.memory, (uintptr_t)m->memory);
        free(m);
    }
    module->managed = nullptr;
}

bool sim_module_find_managed(hipModule_t module, const char *name, uint64_t *addr,
                             uint64_t *bytes) {
    const struct sim_module_managed *m = module->managed;
    while (m && strcmp(m->name, name) != 0)
        m = m->next;
    if (m) {
        *addr = (uintptr_t)m->memory;
        *bytes = m->bytes;
    }
    return m;
}
