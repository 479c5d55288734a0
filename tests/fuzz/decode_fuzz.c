// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the decoder. The first byte chooses the chip, the rest are instruction bytes.
// Fuzzes: libquernsim
#include "../../sim/isa/isa.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 5)
        return 0;
    const sim_chip *chip = sim_chip_by_arch((sim_arch)(data[0] % SIM_NUM_ARCHS));
    for (size_t at = 1; at + 4 <= size;) {
        char error[SIM_ERROR_BYTES];
        sim_inst inst;
        const bool ok = sim_decode(chip, data + at, size - at, at, &inst, error);
        if (ok && (!inst.exec || !inst.bytes || inst.num_dst > 2 || inst.num_src > 4))
            abort();
        if (ok)
            sim_inst_deinit(&inst);
        at += ok ? inst.bytes : 4;
    }
    return 0;
}
