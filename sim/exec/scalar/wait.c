// SPDX-License-Identifier: Apache-2.0
// Waits, hints and cache control, which do nothing: a memory operation is complete when it is
// issued, a register when it is written. Source: "CDNA3", "RDNA3" and "RDNA4" ISA, SOPP, SOPK,
// SMEM.
#include "../exec.h"

static void exec_nothing(sim_wave *, const sim_inst *) {}

// clang-format off
#define NOTHING(name, archs, types, ...) SIM_ROW(#name, exec_nothing, archs, SIM_FLOW, 'i', types, __VA_ARGS__)
#define HINT(name) NOTHING(name, ALL, ":i")
#define WAIT(name, archs, types, waits_) NOTHING(name, archs, types, .waits = SIM_WAIT_##waits_)
#define CACHE(name, archs) NOTHING(name, archs, ":", .unit = SIM_UNIT_CACHE)
#define CACHE_GFX9(name) NOTHING(name, ALL, ":i", .unit = SIM_UNIT_CACHE)
#define PREFETCH(name) NOTHING(name, GFX12, ":t", .unit = SIM_UNIT_SMEM)

static const sim_opcode opcodes[] = {
    WAIT(s_waitcnt, ALL, ":i", FIELDS)
    WAIT(s_wait_alu, GFX12, ":t", OTHER) WAIT(s_waitcnt_depctr, GFX11, ":t", OTHER)
    WAIT(s_wait_event, GFX11P, ":t", OTHER) WAIT(s_wait_idle, GFX11P, ":t", IDLE)
    WAIT(s_waitcnt_vscnt, GFX11, ":ii", STORES) WAIT(s_waitcnt_vmcnt, GFX11, ":ii", LOADS)
    WAIT(s_waitcnt_expcnt, GFX11, ":ii", OTHER) WAIT(s_waitcnt_lgkmcnt, GFX11, ":ii", LDS_SMEM)
    WAIT(s_wait_loadcnt, GFX12, ":i", LOADS) WAIT(s_wait_storecnt, GFX12, ":i", STORES)
    WAIT(s_wait_dscnt, GFX12, ":i", LDS) WAIT(s_wait_kmcnt, GFX12, ":i", SMEM)
    WAIT(s_wait_samplecnt, GFX12, ":i", OTHER) WAIT(s_wait_bvhcnt, GFX12, ":i", OTHER)
    WAIT(s_wait_expcnt, GFX12, ":i", OTHER) WAIT(s_wait_loadcnt_dscnt, GFX12, ":i", LOADS_LDS)
    WAIT(s_wait_storecnt_dscnt, GFX12, ":i", STORES_LDS)
    NOTHING(s_nop, ALL, ":i", .is = SIM_IS_NOP) HINT(s_incperflevel) HINT(s_decperflevel)
    NOTHING(s_sleep, ALL, ":i", .is = SIM_SLEEPS) NOTHING(s_setprio, ALL, ":i", .is = SIM_SETS_PRIORITY)
    HINT(s_ttracedata) HINT(s_wakeup)
    NOTHING(s_delay_alu, GFX11P, ":t") NOTHING(s_clause, GFX11P, ":t")
    NOTHING(s_set_inst_prefetch_distance, GFX11, ":t") NOTHING(s_sleep_var, GFX12, ":i")
    NOTHING(s_version, GFX11P, ":t") NOTHING(s_ttracedata_imm, GFX11P, ":i")
    CACHE_GFX9(s_icache_inv) CACHE_GFX9(buffer_wbl2) CACHE_GFX9(buffer_inv) CACHE_GFX9(buffer_wbinvl1)
    CACHE_GFX9(buffer_wbinvl1_vol) CACHE_GFX9(buffer_invl2)
    CACHE(buffer_gl0_inv, GFX11) CACHE(buffer_gl1_inv, GFX11) CACHE(s_gl1_inv, GFX11)
    CACHE(global_inv, GFX12) CACHE(global_wb, GFX12) CACHE(global_wbinv, GFX12)
    PREFETCH(s_prefetch_inst) PREFETCH(s_prefetch_inst_pc_rel) PREFETCH(s_prefetch_data)
    PREFETCH(s_prefetch_data_pc_rel) PREFETCH(s_buffer_prefetch_data)};

// clang-format on
SIM_TABLE(sim_ops_wait, opcodes);
