// SPDX-License-Identifier: Apache-2.0
// RDNA's dual instructions (VOPD): two vector operations in one word pair. Both read all their
// sources before either writes. Source: "RDNA3" ISA, VOPD.
#include "../wave.h"
#include "isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// RDNA has no AccVGPRs, so the last row of the register file is free to keep one register's old
// value in.
enum { SPARE_ROW = 511 };

/** Writes "v_dual_mov_b32 v1, 0" as the ordinary instruction that it stands for. The select's text
 *  does not name its mask. */
static bool undual(const char *text, size_t length, char *out, size_t room) {
    static const char prefix[] = "v_dual_", select[] = "v_dual_cndmask_b32";
    const size_t skip = sizeof prefix - 1;
    if (length <= skip || strncmp(text, prefix, skip) != 0)
        return false;
    const bool is_select = !strncmp(text, select, sizeof select - 1);
    const int n = snprintf(out, room, "v_%.*s%s", (int)(length - skip), text + skip,
                           is_select ? ", vcc_lo" : "");
    return n > 0 && (size_t)n < room;
}

static bool parse_half(const char *text, size_t length, sim_arch arch, sim_inst *out,
                       char error[SIM_ERROR_BYTES]) {
    char plain[SIM_TEXT_BYTES];
    while (length && (text[length - 1] == ' ' || text[length - 1] == '\t'))
        length--;
    if (!undual(text, length, plain, sizeof plain)) {
        snprintf(error, SIM_ERROR_BYTES, "half of a dual instruction not understood: %.*s",
                 (int)length, text);
        return false;
    }
    return sim_parse(plain, arch, out, error);
}

/** Runs the halves in turn. */
static void exec_dual(sim_wave *w, const sim_inst *inst) {
    if (inst->saves_row)
        memcpy(w->v[SPARE_ROW], w->v[inst->dst[0].reg], sizeof w->v[0]);
    inst->opcode->exec(w, inst);
    inst->second->exec(w, inst->second);
}

/** Gives the second half the old value of a register that the first half writes. */
static void redirect_sources(sim_inst *first, sim_inst *second) {
    for (unsigned i = 0; i < second->num_src; i++) {
        if (second->src[i].kind == SIM_OP_VGPR && second->src[i].reg == first->dst[0].reg) {
            second->src[i].reg = SPARE_ROW;
            first->saves_row = true;
        }
    }
}

bool sim_parse_dual(const char *text, sim_arch arch, sim_inst *out, char error[SIM_ERROR_BYTES]) {
    text += strspn(text, " \t");
    const char *middle = strstr(text, " :: ");
    sim_inst *second = malloc(sizeof *second);
    if (!second) {
        snprintf(error, SIM_ERROR_BYTES, "out of memory");
        return false;
    }
    *second = *out;
    if (!parse_half(text, (size_t)(middle - text), arch, out, error) ||
        !parse_half(middle + 4, strlen(middle + 4), arch, second, error)) {
        free(second);
        return false;
    }
    redirect_sources(out, second);
    out->second = second;
    out->exec = exec_dual;
    return true;
}
