// SPDX-License-Identifier: Apache-2.0
// Vector memory: turns an instruction's operands into one host address for each lane.
#ifndef SIM_ACCESS_H
#define SIM_ACCESS_H

#include "../exec.h"

/** The place of each lane's data. */
typedef struct sim_access {
    uint64_t mask;            // lanes that reach memory; the others load 0 and store nothing
    uint8_t *host[SIM_LANES]; // valid where mask is set
    bool is_lds;              // only the workgroup sees the data
} sim_access;

/** Resolves `bytes` at `skip` past each active lane's address, for global_, flat_, scratch_ and
 *  buffer_ forms. Lanes with an address outside every allocation are reported. Returns false if the
 *  launch is being stopped. */
bool SIM_NAME(sim_resolve)(sim_wave *w, const sim_inst *inst, uint32_t skip, uint32_t bytes,
                           bool is_store, sim_access *out);
/** Resolves an access as sim_resolve does, for addresses in memory that the caller has computed. */
bool SIM_NAME(sim_resolve_addresses)(sim_wave *w, const sim_inst *inst,
                                     const uint64_t address[SIM_LANES], uint32_t bytes,
                                     bool is_store, sim_access *out);
/** Resolves an access of a DS instruction, at the address operand plus `offset`. A lane outside the
 *  workgroup's LDS makes no access. */
void SIM_NAME(sim_resolve_lds)(sim_wave *w, const sim_inst *inst, uint32_t offset, uint32_t bytes,
                               sim_access *out);
// How a mnemonic's first word addresses memory, for the tables.
#define ADDRESSING_buffer SIM_BUFFER
#define ADDRESSING_tbuffer SIM_TYPED_BUFFER
#define ADDRESSING_global SIM_GLOBAL
#define ADDRESSING_flat SIM_FLAT
#define ADDRESSING_scratch SIM_SCRATCH

#define sim_resolve SIM_NAME(sim_resolve)
#define sim_resolve_addresses SIM_NAME(sim_resolve_addresses)
#define sim_resolve_lds SIM_NAME(sim_resolve_lds)

#endif
