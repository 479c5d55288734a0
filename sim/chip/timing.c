// SPDX-License-Identifier: Apache-2.0
// The timing of the chips.
//
// Letters behind a value: H a vendor's document or raw measurement, M a vendor's tool, a compiler's
// model or a third party's measurement, L inferred. Sources: the CDNA3 white paper (WP), ROCm
// Compute Profiler's documents (RCP), AMD's matrix instruction calculator (MIC), a published run of
// mt4g on an MI300X (MT4G), Chips and Cheese on MI300X and MI300A (CC), "Measuring Max-Achievable
// FLOPs" on ROCm's blog (MAF), thread traces of an MI308X and an MI350X (TT, llvm/llvm-project's
// change 233721).
#include "timing.h"

const sim_timing sim_gfx942_timing = {
    .issue_cycles = 4,  // RCP, H
    .valu_cycles = 4,   // RCP, H
    .trans_cycles = 16, // LLVM's model, M
    .trans_shadow_cycles = 16,
    .pass_cycles = 4,           // MIC, H
    .matrix_shadow_cycles = 4,  // MIC's coexecution fields, H
    .matrix_source_cycles = 4,  // TT, M
    .packed_wait_cycles = 8,    // TT, M
    .branch_cycles = 16,        // L
    .barrier_cycles = 28,       // L: 20 to 40
    .sleep_cycles = 64,         // ISA manual, H
    .fetch_cache_bytes = 65536, // WP, H
    .fetch_bytes = 128,         // WP, H
    .fetch_ahead = 1,           // L
    .scalar_units = 2,          // WP, H

    .scalar_cache_bytes = 16384, // RCP, H
    .scalar_line_bytes = 64,     // RCP, H
    .scalar_hit_cycles = 48,     // MT4G, H

    .lds_cycles = 52,       // MT4G, H
    .lds_pair_bytes = 64,   // RCP, H
    .lds_store_cycles = 4,  // RCP: 8 cycles for a dword a lane, 20 for four, H
    .lds_queue_cycles = 64, // L

    .address_cycles = 4,    // RCP: 16 lanes a cycle, H
    .l1_bytes = 32768,      // WP, H
    .l1_ways = 16,          // L
    .l1_hit_cycles = 116,   // MT4G, H
    .l1_port_bytes = 64,    // contradictory: 64 in CDNA2's documents, 128 in WP, L
    .l1_misses = 256,       // L
    .l1_queue_cycles = 256, // L
    .mid_ways = 1,          // there is none
    .mid_units = 1,
    .mid_hit_cycles = 1,
    .mid_read_bytes = 4,
    .l2_channels = 16,    // WP, H
    .l2_ways = 16,        // WP, H
    .l2_hit_cycles = 288, // MT4G, H; others say 213 and 254
    // WP, H; MT4G reads 15.4 TB/s, which is 57 a channel. With 64, AITER's int8 GEMMs of 192
    // workgroups with lines in common take a quarter longer than on an MI325X; with 128, as long.
    .l2_read_bytes = 128,
    .l2_write_bytes = 32, // 64 in WP; MT4G writes 7.05 TB/s, which is 26, L
    .l2_unit_bytes = 64,  // RCP, M
    .atomic_cycles = 382, // rocprof on an MI300X, M

    .fabric_bytes = 708, // CC: 11.9 TB/s over 8 XCDs, M
    .mall_mib = 256,     // WP, H
    .mall_ns = 218,      // CC, M
    .hbm_channels = 128, // WP, H
    .hbm_ns = 420,       // MT4G, H
    .most_hops = 2,      // WP, H
    // L: loads wait less for the memory beside an XCD than for all, by 1.42 if the memory-side
    // cache has their lines, by 1.31 if not ("The MALL is Open", SC25): 64 and 99 ns a hop. With
    // the first, AITER's int8 GEMMs on an MI325X take as long as published, with the other a tenth
    // longer.
    .hop_ns = 64,
    .hbm_mb_per_s = 32800, // 4.2 TB/s of BabelStream's class, of 5.3 nominal, M

    .group_cycles = 4, // L
    .wave_cycles = 32, // L
    // L: start, invalidation of caches, drain. The shortest GEMMs of AITER's tables take 3.2 us in
    // all; its int8 GEMMs of few workgroups (MI325X) ask for 2 to 3 us of their own.
    .launch_ns = 2000,

    // The clocks that MAF gives for an MI300X of 750 W (fp16 1115, bf16 1207, fp8 1230 MHz) and an
    // MI325X of 1000 W (1354, 1447, 1464) fit a dynamic power that grows with the clock's 2.05th
    // power over 200 W that are static, so that an energy grows with its 1.05th.
    .limit_w = 750,  // H
    .static_w = 200, // L
    .reference_mhz = 1200,
    .energy_exponent = 105, // MAF, M
    // Energies of MAF's products (16x16), 840, 780 and 430 fJ with all that a GEMM draws besides,
    // are those of boards that AMD chose: the best products that others measured are 5.6 % (bf16,
    // stas00/ml-engineering, M), 6.9 % (the same, MI325X) and 6 % (FP8, Azure's guide, M) below
    // MAF's, as if each took an eighth more. Of 945, 880 and 485, registers have 75, 75 and 38.
    .flop_f16_fj = 870,
    .flop_bf16_fj = 805,
    .flop_f8_fj = 447,
    // M: AITER's int8 GEMMs of whole rounds run at 1.28 GHz on an MI325X, which MAF's FP8 leaves
    // 1.46: 8 by 8 bits are multiplied, not 4 by 4. 38 of the 570 are registers'.
    .flop_i8_fj = 532,
    .flop_f32_fj = 3000, // L
    // L: products of 32x32 read and write half as many bytes of registers more for an operation as
    // those of 16x16, and draw more (MAF). A packed f32 instruction moves 2 KiB: 0.41 nJ of at most
    // 0.55 (below).
    .register_byte_fj = 200,
    // L: an MI300A gives 113 TFLOP/s of packed f32 (CC), so that one of its instructions takes at
    // most 0.55 nJ of what 550 W leave. One of a value for each lane is taken to need half. Of
    // AITER's three ways to round, whose vector instructions differ, the times ask for 0.22 to 0.4.
    .valu_pj = 270,
    .lds_byte_fj = 0, // in the matrix instructions' energies, which are of whole GEMMs
    .l2_byte_fj = 0,
    .hbm_byte_fj = 30000, // L: 4 pJ a bit
};

// What CDNA2 shares with CDNA3 has the values above. "MT4G 210" is that
// program's run on an MI210, the same die with 104 of its units at the same clock. An MI250X is two
// of these dies, of which each is a device.
const sim_timing sim_gfx90a_timing = {
    .issue_cycles = 4,  // RCP, H
    .valu_cycles = 4,   // RCP, H
    .trans_cycles = 16, // LLVM's model, M
    .trans_shadow_cycles = 16,
    .pass_cycles = 4,          // MIC, H
    .matrix_shadow_cycles = 4, // MIC's coexecution fields, H
    .matrix_source_cycles = 4,
    .packed_wait_cycles = 8,
    .branch_cycles = 16,
    .barrier_cycles = 28,
    .sleep_cycles = 64,
    .fetch_cache_bytes = 32768, // RCP, H
    .fetch_bytes = 64,          // RCP: lines of the instruction cache, H
    .fetch_ahead = 1,
    .scalar_units = 2, // MT4G 210, H

    .scalar_cache_bytes = 16384, // MT4G 210, H
    .scalar_line_bytes = 64,     // MT4G 210, H
    .scalar_hit_cycles = 48,     // MT4G 210, H

    .lds_cycles = 48,     // MT4G 210, H
    .lds_pair_bytes = 64, // RCP, H
    .lds_store_cycles = 4,
    .lds_queue_cycles = 64,

    .address_cycles = 4,
    // MT4G 210, H. Its lines have 64 bytes, the model's as many as the second level's.
    .l1_bytes = 16384,
    .l1_ways = 64,        // RCP, H
    .l1_hit_cycles = 124, // MT4G 210, H
    .l1_port_bytes = 64,  // RCP, H
    .l1_misses = 256,
    .l1_queue_cycles = 256,
    .mid_ways = 1, // there is none
    .mid_units = 1,
    .mid_hit_cycles = 1,
    .mid_read_bytes = 4,
    .l2_channels = 32,    // RCP, H
    .l2_ways = 16,        // RCP, H
    .l2_hit_cycles = 292, // MT4G 210, H
    .l2_read_bytes = 128, // RCP, H; MT4G 210 reads 4.3 TB/s, which is 79
    .l2_write_bytes = 48, // 64 in RCP; MT4G 210 writes 2.6 TB/s, which is 47, L
    .l2_unit_bytes = 64,
    .atomic_cycles = 382,

    .fabric_bytes = 2048, // L: 64 a channel, so that memory is what limits
    .mall_mib = 0,        // H
    .mall_ns = 1,
    .hbm_channels = 32, // of 128 bits each, H
    .hbm_ns = 402,      // MT4G 210: 684 cycles, H
    .most_hops = 0,
    .hop_ns = 0,
    .hbm_mb_per_s = 41000, // L: 80 % of 1.6 TB/s, as an MI300X reaches; MT4G 210 reads 1.17 TB/s

    .group_cycles = 4,
    .wave_cycles = 32,
    .launch_ns = 2000,

    .limit_w = 280, // H: half of a board's 560 W
    .static_w = 80, // L
    .reference_mhz = 1200,
    .energy_exponent = 105,
    .flop_f16_fj = 1260, // L: the MI300X's, half more for the older process
    .flop_bf16_fj = 1170,
    .flop_f8_fj = 650,
    .flop_i8_fj = 650,
    .flop_f32_fj = 4500,
    .register_byte_fj = 0,
    .valu_pj = 750,
    .lds_byte_fj = 0,
    .l2_byte_fj = 0,
    .hbm_byte_fj = 30000,
};

// What CDNA4 shares with CDNA3 has the values above. CDNA4's white paper (WP4) gives what differs;
// no measurement of an MI355X's latencies is published.
const sim_timing sim_gfx950_timing = {
    .issue_cycles = 4,
    .valu_cycles = 4,
    .trans_cycles = 8, // WP4: twice CDNA3's rate, M; LLVM's model has CDNA3's
    .trans_shadow_cycles = 8,
    .pass_cycles = 4,
    .matrix_shadow_cycles = 4,
    .matrix_source_cycles = 4, // TT, M
    .packed_wait_cycles = 8,   // TT, M
    .branch_cycles = 16,
    .barrier_cycles = 28,
    .sleep_cycles = 64,
    .fetch_cache_bytes = 65536,
    .fetch_bytes = 128,
    .fetch_ahead = 1,
    .scalar_units = 2,

    .scalar_cache_bytes = 16384,
    .scalar_line_bytes = 64,
    .scalar_hit_cycles = 48,

    .lds_cycles = 52,
    .lds_pair_bytes = 128, // WP4: twice CDNA3's reads, M
    .lds_store_cycles = 4,
    .lds_queue_cycles = 64,

    .address_cycles = 4,
    .l1_bytes = 32768,
    .l1_ways = 16,
    .l1_hit_cycles = 116,
    .l1_port_bytes = 64,
    .l1_misses = 256,
    .l1_queue_cycles = 256,
    .mid_ways = 1, // there is none
    .mid_units = 1,
    .mid_hit_cycles = 1,
    .mid_read_bytes = 4,
    .l2_channels = 16,
    .l2_ways = 16,
    .l2_hit_cycles = 288,
    .l2_read_bytes = 128,
    .l2_write_bytes = 32,
    .l2_unit_bytes = 64,
    .atomic_cycles = 382,

    .fabric_bytes = 708,
    .mall_mib = 256, // WP4, H
    .mall_ns = 218,
    .hbm_channels = 128, // WP4, H
    // L: AITER's GEMMs of few workgroups, which stream weights, ask for 500 to 550 where an MI300X
    // has 420.
    .hbm_ns = 500,
    .most_hops = 1, // WP4, H
    .hop_ns = 64,
    .hbm_mb_per_s = 50000, // L: 80 % of 8.0 TB/s, as an MI300X reaches

    .group_cycles = 4,
    .wave_cycles = 32,
    .launch_ns = 2000,

    // L: AITER's largest bf16 GEMMs give 1510 TFLOP/s. That is 1.6 GHz if the matrix units are busy
    // nine tenths of the time, and leaves 1100 W for their work.
    .limit_w = 1400, // H
    .static_w = 300,
    .reference_mhz = 1200,
    .energy_exponent = 105,
    // 540 fJ of bf16, of which registers have 50; the others' in the proportion of CDNA3's FP8.
    .flop_f16_fj = 490,
    .flop_bf16_fj = 490,
    .flop_f8_fj = 275,
    .flop_i8_fj = 275,
    .flop_f32_fj = 3000,
    .register_byte_fj = 200,
    .valu_pj = 270,
    .lds_byte_fj = 0,
    .l2_byte_fj = 0,
    .hbm_byte_fj = 30000,
};

// RDNA 3.5. Sources beside those above: ROCm Compute Profiler's metrics of gfx1151 (RCP 1151),
// LLVM's model of gfx11 and gfx12 (LLVM), Chips and Cheese on Strix Halo (CCS) and on RDNA 3's
// latencies (CCR). Of this chip's latencies up to the second level nothing that could be had is
// published.
const sim_timing sim_gfx1151_timing = {
    .issue_cycles = 1,          // "RDNA3" ISA, H; one instruction of each category: L
    .valu_cycles = 1,           // "RDNA3" ISA, H: 32 lanes
    .trans_cycles = 4,          // LLVM: a quarter of the rate, M
    .trans_shadow_cycles = 1,   // LLVM: a unit of its own, M
    .valu_result_cycles = 5,    // LLVM, M
    .trans_result_cycles = 10,  // LLVM, M
    .scalar_result_cycles = 2,  // LLVM, M
    .pass_cycles = 4,           // MIC, H; measured on this chip: 32 cycles of a chain of WMMAs
    .matrix_shadow_cycles = 64, // L: vector instructions do not run beside matrix instructions
    .matrix_source_cycles = 0,
    .packed_wait_cycles = 0,
    .branch_cycles = 16,        // L: as on CDNA; 32 in LLVM
    .barrier_cycles = 28,       // L: as on CDNA
    .sleep_cycles = 64,         // "RDNA3" ISA, H
    .fetch_cache_bytes = 32768, // ROCm's table of GPUs, H
    .fetch_bytes = 128,         // L
    .fetch_ahead = 1,           // L
    .scalar_units = 2,          // ROCm's table of GPUs, H

    .scalar_cache_bytes = 16384, // ROCm's table of GPUs, H
    .scalar_line_bytes = 64,     // RCP 1151: 64 bytes a cycle, L
    .scalar_hit_cycles = 44,     // L: 15 ns

    .lds_cycles = 64,       // L
    .lds_pair_bytes = 128,  // HIP's guide: 64 banks of two compute units, H
    .lds_store_cycles = 0,  // L
    .lds_queue_cycles = 64, // L

    .address_cycles = 1,    // L
    .l1_bytes = 32768,      // ROCm's table of GPUs, H
    .l1_ways = 16,          // L
    .l1_hit_cycles = 90,    // L
    .l1_port_bytes = 64,    // measured on an RX 7600 (RRZE's gpu-benches), M; 128 in RCP 1151
    .l1_misses = 256,       // L
    .l1_queue_cycles = 256, // L
    .mid_bytes = 262144,    // CCS, M
    .mid_ways = 16,         // L
    .mid_units = 10,        // rocminfo: four arrays, H; CCS: two, RCP 1151: 8 compute units
    .mid_hit_cycles = 150,  // L
    .mid_read_bytes = 128,  // RCP 1151, H
    .l2_channels = 16,      // L
    .l2_ways = 16,          // L
    .l2_hit_cycles = 250,   // L
    .l2_read_bytes = 64,    // L; 128 in RCP 1151
    .l2_write_bytes = 64,   // L
    .l2_unit_bytes = 64,    // L
    .atomic_cycles = 300,   // L

    .fabric_bytes = 353, // L: 1024 bytes a ns, of 16 channels of 32 bytes at 2 GHz
    .mall_mib = 32,      // H
    .mall_ns = 160,      // L: CCR has 150 for an RX 7900 XTX, CCS a little more here
    .hbm_channels = 16,  // L: of 16 bits
    .hbm_ns = 320,       // L
    .most_hops = 0,
    .hop_ns = 0,
    .hbm_mb_per_s = 13800, // 221 GB/s of 256 (lhl/strix-halo-testing), M; others 202 to 236

    .group_cycles = 4, // L
    .wave_cycles = 32, // L
    .launch_ns = 2000, // L: as on CDNA

    // L: nothing says what its work draws. These energies never come to the limit.
    .limit_w = 120, // H: of all of the chip
    .static_w = 30,
    .reference_mhz = 2900,
    .energy_exponent = 105,
    .flop_f16_fj = 900,
    .flop_bf16_fj = 900,
    .flop_f8_fj = 900,
    .flop_i8_fj = 900,
    .flop_f32_fj = 3000,
    .register_byte_fj = 0,
    .valu_pj = 30,
    .lds_byte_fj = 0,
    .l2_byte_fj = 0,
    .hbm_byte_fj = 40000,
};

// RDNA 4: RDNA 3.5's values where nothing else is said. No latency that could be had and trusted is
// published.
const sim_timing sim_gfx1201_timing = {
    .issue_cycles = 1,
    .valu_cycles = 1,
    .trans_cycles = 4,
    .trans_shadow_cycles = 1,
    .valu_result_cycles = 5,    // LLVM, M
    .trans_result_cycles = 9,   // LLVM, M
    .scalar_result_cycles = 2,  // LLVM, M
    .pass_cycles = 4,           // MIC, H
    .matrix_shadow_cycles = 64, // L
    .matrix_source_cycles = 0,
    .packed_wait_cycles = 0,
    .branch_cycles = 16,
    .barrier_cycles = 28,
    .sleep_cycles = 64,
    .fetch_cache_bytes = 32768,
    .fetch_bytes = 128,
    .fetch_ahead = 1,
    .scalar_units = 2,

    .scalar_cache_bytes = 16384,
    .scalar_line_bytes = 64,
    .scalar_hit_cycles = 44,

    .lds_cycles = 64,
    .lds_pair_bytes = 128,
    .lds_store_cycles = 0,
    .lds_queue_cycles = 64,

    .address_cycles = 1,
    .l1_bytes = 32768, // ROCm's table of GPUs, H
    .l1_ways = 16,
    .l1_hit_cycles = 90,
    .l1_port_bytes = 64,
    .l1_misses = 256,
    .l1_queue_cycles = 256,
    .mid_bytes = 0, // L: what RDNA 3 has there keeps no lines
    .mid_ways = 1,
    .mid_units = 1,
    .mid_hit_cycles = 1,
    .mid_read_bytes = 4,
    .l2_channels = 32, // L
    .l2_ways = 16,
    .l2_hit_cycles = 250,
    .l2_read_bytes = 64,
    .l2_write_bytes = 64,
    .l2_unit_bytes = 64,
    .atomic_cycles = 300,

    .fabric_bytes = 690, // L: 2048 bytes a ns, of 16 channels of 64 bytes at 2 GHz
    .mall_mib = 64,      // H
    .mall_ns = 130,      // L: below the RX 7900 XTX's, whose cache is on other dies
    .hbm_channels = 16,  // of 16 bits, H
    .hbm_ns = 250,       // L
    .most_hops = 0,
    .hop_ns = 0,
    .hbm_mb_per_s = 34000, // L: 85 % of 640 GB/s

    .group_cycles = 4,
    .wave_cycles = 32,
    .launch_ns = 2000,

    // L: nothing says what its work draws. These energies never come to the limit.
    .limit_w = 304, // H
    .static_w = 60,
    .reference_mhz = 2970,
    .energy_exponent = 105,
    .flop_f16_fj = 900,
    .flop_bf16_fj = 900,
    .flop_f8_fj = 450,
    .flop_i8_fj = 450,
    .flop_f32_fj = 3000,
    .register_byte_fj = 0,
    .valu_pj = 30,
    .lds_byte_fj = 0,
    .l2_byte_fj = 0,
    .hbm_byte_fj = 40000,
};
