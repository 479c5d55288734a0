// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the code-object reader takes any bytes and gives a status.
#include "../sim/sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static sim_memory *memory;
    if (!memory) {
        memory = sim_memory_create();
    }
    char error[256];
    sim_object *object;
    const sim_chip *chip = sim_chip_by_arch(SIM_GFX942);
    if (sim_object_load(&object, memory, chip, 0, data, size, error, sizeof error) ==
        SIM_OBJECT_OK) {
        sim_object_unload(object);
    }
    return 0;
}
