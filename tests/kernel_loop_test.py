# SPDX-License-Identifier: Apache-2.0
"""The contract of all images, read from their code: what they spill, and what their loops of matrix instructions hold.
And of the gfx942 FP8 gemm kernels: the loop, its mix, registers, waits."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(os.environ["QUERN_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "tools"))
import kernel_loop  # noqa: E402

IMAGES = Path(os.environ["QUERN_BUILD_DIR"]) / "images"
BLOCKS = 2  # K-blocks of 128 that one turn of the loop runs, where a table does not say
MFMA_PER_TILE = 8  # of 32 x 32 x 16, for a 32 x 32 tile and 128 of k

# image, K-blocks that a turn runs, tiles of 32 x 32 a wave, vector instructions allowed for each MFMA, whether a goes to LDS by
# copies
KERNELS = [
    ("gemm_fp8_256x128", 2, 4 * 2, 2.25, True),
    ("gemm_fp8_128x128", 2, 2 * 2, 2.25, True),
    ("gemm_fp8_128x128_alone", 3, 2 * 2, 2.45, True),
    ("gemm_fp8_96x128", 4, 3, 2.5, True),
    ("gemm_fp8_64x128", 4, 2, 2.35, True),
    ("gemm_fp8_fn_128x128", 2, 2 * 2, None, False),  # repairs a on the way: more vector work
]


def the_kernel(image, target="gfx942", name=None):
    """Returns an image's only kernel, or that of the name."""
    path = IMAGES / f"{image}.{target}.co"
    if not path.exists():
        pytest.skip(f"no {target} images in this build")
    (kernel,) = [k for k in kernel_loop.read_kernels(str(path)) if name in (None, k.name)]
    return kernel


def the_loop(kernel):
    bodies = kernel.matrix_loops()
    return max(bodies, key=lambda body: kernel_loop.mix_of(body)["matrix"])


@pytest.mark.parametrize("image, blocks, tiles, ratio, copies", KERNELS)
def test_loop_has_the_tiles_mfmas(image, blocks, tiles, ratio, copies):
    body = the_loop(the_kernel(image))
    mfmas = [i for i in body if i.name == "v_mfma_f32_32x32x16_fp8_fp8"]
    assert len(mfmas) == blocks * MFMA_PER_TILE * tiles
    assert kernel_loop.mix_of(body)["matrix"] == len(mfmas)


@pytest.mark.parametrize("image, blocks, tiles, ratio, copies", KERNELS)
def test_loop_is_lean(image, blocks, tiles, ratio, copies):
    mix = kernel_loop.mix_of(the_loop(the_kernel(image)))
    assert mix["agpr move"] == 0 and mix["scratch"] == 0
    if ratio:
        assert mix["vector"] <= ratio * mix["matrix"]
    # Two FMAs for each MFMA promote its partial to the sum.
    assert mix["vector"] >= 2 * mix["matrix"]


@pytest.mark.parametrize("image, blocks, tiles, ratio, copies", KERNELS)
def test_kernel_needs_no_scratch(image, blocks, tiles, ratio, copies):
    usage = the_kernel(image).usage
    assert usage["private_segment_fixed_size"] == 0
    assert usage["vgpr_spill_count"] == 0


@pytest.mark.parametrize("image, blocks, tiles, ratio, copies", KERNELS)
def test_copies_are_waited_for_before_barriers(image, blocks, tiles, ratio, copies):
    kernel = the_kernel(image)
    body = the_loop(kernel)
    assert (kernel_loop.mix_of(body)["lds copy"] > 0) == copies
    assert kernel_loop.mix_of(body)["barrier"] == blocks
    assert kernel_loop.waits_before_barriers(body)


@pytest.mark.parametrize("image, stages", [k[:2] for k in KERNELS if k[4]])
def test_meetings_wait_for_the_copies_and_nothing_younger(image, stages):
    """Tests what each barrier waits for: the copies of all stages but those that are still to land. A full wait would stall the
    loop; a shorter one would read what has not landed."""
    body = the_loop(the_kernel(image))
    turns = body + body
    meetings = [n for n, i in enumerate(turns) if i.kind == "barrier" and n >= len(body)]
    copies = kernel_loop.mix_of(body)["lds copy"] // stages
    for n in meetings:
        younger, left = 0, (stages - 2) * copies
        for i in reversed(turns[:n]):
            if i.kind == "lds copy" and left == 0:
                break
            left -= i.kind == "lds copy"
            younger += i.kind in ("lds copy", "memory")
        assert turns[n - 1].operands == f"vmcnt({younger}) lgkmcnt(0)"


@pytest.mark.parametrize("image, blocks", [k[:2] for k in KERNELS if k[1] > 2])
def test_deep_loops_keep_loads_under_way(image, blocks):
    """Tests that no wait of a loop with more than two stages leaves fewer loads under way than all but two K-blocks have."""
    body = the_loop(the_kernel(image))
    mix = kernel_loop.mix_of(body)
    waits = [int(n) for i in body for n in re.findall(r"vmcnt\((\d+)\)", i.operands)]
    assert min(waits) >= (mix["memory"] + mix["lds copy"]) // blocks * (blocks - 2)


# The kernels of gfx950, which multiply by f8f6f4: image, MFMAs of a turn, their shape, vector instructions allowed for a tile and
# 128 of k, all instructions of LDS
F8F6F4 = [("gemm_fp8_256x128", 2 * 2 * 8, "32x32x64", 18, 2 * 16), ("gemm_fp8_128x128", 2 * 2 * 4, "32x32x64", 18, 2 * 8),
          ("gemm_flat_128x128", 2 * 16, "16x16x128", 4.25, 2 * (8 + 2 * (4 + 4)))]


@pytest.mark.parametrize("image, mfmas, shape, ratio, lds", F8F6F4)
def test_loops_of_f8f6f4_are_lean(image, mfmas, shape, ratio, lds):
    """Tests that a turn has its products and FMAs, moves no registers and waits for its copies."""
    kernel = the_kernel(image, "gfx950")
    body = the_loop(kernel)
    mix = kernel_loop.mix_of(body)
    tiles = mfmas // (2 if shape == "32x32x64" else 1)
    assert sum(i.name == f"v_mfma_f32_{shape}_f8f6f4" for i in body) == mix["matrix"] == mfmas
    assert (16 if shape == "32x32x64" else 4) * tiles <= mix["vector"] <= ratio * tiles
    assert mix["lds"] == lds
    assert mix["agpr move"] == mix["scratch"] == kernel.usage["vgpr_spill_count"] == 0
    assert mix["lds copy"] == 0 or kernel_loop.waits_before_barriers(body)


# image, tiles of 16 x 16 a wave, K-blocks between two meetings
ROWS = [("gemm_rows_16x32", 1, 4), ("gemm_rows_32x64", 2, 2)]


@pytest.mark.parametrize("image, tiles, group", ROWS)
def test_rows_keep_loads_under_way(image, tiles, group):
    """Tests that a turn multiplies its eight K-blocks, and that no wait leaves less than four K-blocks' loads under way."""
    kernel = the_kernel(image)
    body = the_loop(kernel)
    mix = kernel_loop.mix_of(body)
    assert sum(i.name == "v_mfma_f32_16x16x32_fp8_fp8" for i in body) == mix["matrix"] == 8 * 4 * tiles
    assert mix["barrier"] == 8 // group
    assert mix["agpr move"] == mix["scratch"] == kernel.usage["vgpr_spill_count"] == 0
    assert mix["memory"] == 8 * 5 + 2  # a and b of a K-block; scales of a turn
    assert min(int(n) for i in body for n in re.findall(r"vmcnt\((\d+)\)", i.operands)) >= 4 * 5


@pytest.mark.parametrize("target, name, mfmas, loads", [("gfx942", "32_fp8_fp8", 4, 4), ("gfx950", "128_f8f6f4", 1, 2)])
def test_split_keeps_loads_under_way(target, name, mfmas, loads):
    """Tests that a wave multiplies four K-blocks between two meetings, and that no wait for one leaves less than the other three's
    loads under way."""
    kernel = the_kernel("gemm_split_16x16", target)
    body = the_loop(kernel)
    mix = kernel_loop.mix_of(body)
    assert sum(i.name == f"v_mfma_f32_16x16x{name}" for i in body) == mix["matrix"] == 4 * mfmas
    assert mix["barrier"] == 1
    assert mix["agpr move"] == mix["scratch"] == kernel.usage["vgpr_spill_count"] == 0
    assert mix["memory"] == 4 * (2 + loads) + 2  # a and b of a K-block; scales of a turn
    assert min(int(n) for i in body for n in re.findall(r"vmcnt\((\d+)\)", i.operands)) >= 3 * (2 + loads)


# image, tiles of 16 rows and of 16 columns a wave, K-blocks of a turn
HALF_ROWS = [("gemm_bf16_rows_16x16", 1, 1, 12), ("gemm_bf16_rows_32x32", 2, 2, 6)]


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("image, rows, columns, ahead", HALF_ROWS)
def test_rows_of_halves_load_and_multiply_alone(image, rows, columns, ahead, target):
    """Tests that a turn has its products and loads, whose descriptors are in SGPRs: no branch but the loop's own; no LDS, no
    meeting, and one vector instruction for each 16 rows of a or b in a K-block; and that no wait is for a younger block than the
    one to be multiplied."""
    kernel = the_kernel(image, target)
    body = the_loop(kernel)
    mix = kernel_loop.mix_of(body)
    loads = 2 * (rows + columns)
    assert sum(i.name.startswith("v_mfma_f32_16x16x16") for i in body) == mix["matrix"] == ahead * 4 * rows * columns
    assert mix["memory"] == ahead * loads and mix["branch"] == 1
    assert mix["lds"] == mix["barrier"] == mix["agpr move"] == mix["scratch"] == kernel.usage["vgpr_spill_count"] == 0
    assert mix["vector"] <= ahead * (rows + columns)
    assert min(int(n) for i in body for n in re.findall(r"vmcnt\((\d+)\)", i.operands)) >= (ahead - 1) * loads


# image, whether it repairs e4m3fn on the way to LDS
FLAT = [("gemm_flat_128x128", False), ("gemm_flat_fn_128x128", True)]


@pytest.mark.parametrize("image, repairs", FLAT)
def test_flat_weights_cost_no_more_than_their_way_through_lds(image, repairs):
    """Tests that a K-block has its tiles' products, FMAs and scales, and two writes for each of its loads, which are under way
    until then: no wait is for all of them, and both meetings wait for LDS alone."""
    kernel = the_kernel(image)
    body = the_loop(kernel)
    mix = kernel_loop.mix_of(body)
    tiles, loads, scales = 4 * 4, 8, 4 + 1
    assert sum(i.name == "v_mfma_f32_16x16x32_fp8_fp8" for i in body) == mix["matrix"] == BLOCKS * 4 * tiles
    assert mix["memory"] == BLOCKS * (loads + scales)
    assert mix["lds"] == BLOCKS * (2 * loads + 2 * (4 + 4)) and mix["barrier"] == 2 * BLOCKS
    assert mix["agpr move"] == mix["scratch"] == kernel.usage["vgpr_spill_count"] == 0
    if not repairs:
        assert mix["vector"] == BLOCKS * (4 * tiles + 4)
    waits = [int(n) for i in body for n in re.findall(r"vmcnt\((\d+)\)", i.operands)]
    assert min(waits) >= loads
    meetings = [n for n, i in enumerate(body) if i.kind == "barrier"]
    assert [next(i.operands for i in reversed(body[:n]) if i.kind == "wait") for n in meetings] == ["lgkmcnt(0)"] * 2 * BLOCKS


@pytest.mark.parametrize("target, name, mfmas", [("gfx942", "32x32x16_fp8_fp8", 8), ("gfx950", "32x32x64_f8f6f4", 2)])
def test_experts_of_few_tokens_keep_loads_under_way(target, name, mfmas):
    """Tests that a turn multiplies its four K-blocks, and that no wait leaves less than three K-blocks' loads under way."""
    path = IMAGES / f"moe_few.{target}.co"
    if not path.exists():
        pytest.skip(f"no {target} images in this build")
    for kernel in kernel_loop.read_kernels(str(path)):
        body = min(kernel.matrix_loops(), key=len)  # inside the second kernel's loop over pairs
        mix = kernel_loop.mix_of(body)
        assert sum(i.name == f"v_mfma_f32_{name}" for i in body) == mix["matrix"] == 4 * mfmas
        assert mix["memory"] == 4 * 4 and mix["barrier"] == mix["agpr move"] == mix["scratch"] == mix["lane move"] == 0
        assert min(int(n) for i in body for n in re.findall(r"vmcnt\((\d+)\)", i.operands)) >= 3 * 4


# image, tiles of 16 x 16 a wave, K-blocks of 64 that a turn runs, copies of a wave for each
HALVES = [("gemm_fp8_row_64x64", 2 * 2, 2, 16)]
HALVES += [(f"gemm_{dtype}_{tile}", *form) for dtype in ("bf16", "f16")
          for tile, form in (("128x128", (4 * 4, 1, 32)), ("128x128_alone", (4 * 4, 2, 32)), ("64x64", (2 * 2, 2, 16)))]


@pytest.mark.parametrize("image, tiles, blocks, copies", HALVES)
def test_loop_of_halves_multiplies_and_moves_nothing_else(image, tiles, blocks, copies):
    body = the_loop(the_kernel(image))
    mix = kernel_loop.mix_of(body)
    name = "v_mfma_f32_16x16x" + ("32_fp8_fp8" if "_fp8" in image else "16_bf16" if "_bf16" in image else "16_f16")
    assert sum(i.name == name for i in body) == mix["matrix"] == 4 * tiles * blocks
    assert mix["lds copy"] == copies * blocks
    assert mix["agpr move"] == mix["scratch"] == mix["vector"] == mix["memory"] == 0


@pytest.mark.parametrize("image, tiles, blocks, copies", HALVES)
def test_halves_meet_when_all_but_the_last_blocks_copies_have_landed(image, tiles, blocks, copies):
    """A K-block has two meetings: its stage is free, the next block has landed. With two stages the copies of one block may
    be under way at both, with one stage none may."""
    body = the_loop(the_kernel(image))
    meetings = [n for n, i in enumerate(body) if i.kind == "barrier"]
    assert len(meetings) == 2 * blocks
    assert {body[n - 1].operands for n in meetings} == {f"vmcnt({copies * (blocks - 1)}) lgkmcnt(0)"}


# image, tiles of 16 x 16 a wave; of a K-block: vector instructions, which turn pairs of rows, loads, reads and writes of LDS
WIDE = [("gemm_fp8_row_256x224", 4 * 7, 0, 8, 22 + 8), ("gemm_bf16_256x192", 4 * 6, 0, 7, 20 + 7)]
WIDE += [(f"gemm_{dtype}_{tile}", *form) for dtype in ("bf16", "f16")
        for tile, form in (("256x224", (4 * 7, 0, 8, 22 + 8)), ("nn_256x128", (4 * 4, 8, 6, 16 + 8 + 4)),
                           ("tn_256x128", (4 * 4, 24, 6, 16 + 8 + 8)), ("tt_256x128", (4 * 4, 16, 6, 16 + 8 + 2)))]


@pytest.mark.parametrize("image, tiles, vector, loads, lds", WIDE)
def test_wide_loop_multiplies_and_fills_its_stage(image, tiles, vector, loads, lds):
    """Tests that operands across cost a vector instruction for each word that they fill, and nothing else does."""
    body = the_loop(the_kernel(image))
    mix = kernel_loop.mix_of(body)
    name = "v_mfma_f32_16x16x" + ("32_fp8_fp8" if "_fp8" in image else "16_bf16" if "_bf16" in image else "16_f16")
    assert sum(i.name == name for i in body) == mix["matrix"] == 4 * tiles
    assert (mix["vector"], mix["memory"], mix["lds"], mix["barrier"]) == (vector, loads, lds, 2)
    assert mix["agpr move"] == mix["scratch"] == mix["lds copy"] == 0


@pytest.mark.parametrize("image", [w[0] for w in WIDE])
def test_wide_meetings_leave_loads_under_way(image):
    """Tests that both meetings wait for LDS alone: the next block's loads have until its writes to land."""
    body = the_loop(the_kernel(image))
    meetings = [n for n, i in enumerate(body) if i.kind == "barrier"]
    waits = [next(i for i in reversed(body[:n]) if i.kind == "wait") for n in meetings]
    assert [w.operands for w in waits] == ["lgkmcnt(0)"] * 2


# image, target, kernel, tiles of 16 x 16 a wave and their operands, pieces of a thread for each 64 bytes of a row of a and of b,
# whether a and b lie across
RDNA = [(f"gemm_{dtype}_wmma_{tile}", target, f"qk_gemm_wmma{layout}", *form, across)
        for dtype in ("bf16", "f16") for target in ("gfx1151", "gfx1201")
        for tile, form in (("128x128", (4 * 2, 4 + 2, (2, 2))), ("32x64", (2 * 1, 2 + 1, (1, 2))))
        for layout, across in (("", (False, False)), ("_nn", (False, True)), ("_tn", (True, True)), ("_tt", (True, False)))]


@pytest.mark.parametrize("image, target, name, tiles, operands, pieces, across", RDNA)
def test_wmma_loop_multiplies_and_moves_nothing_else(image, target, name, tiles, operands, pieces, across):
    """Tests that a turn has the instructions of a line and, for operands that lie across, one vector instruction for each word
    that goes to LDS, where two are written at once: WMMA leaves no time for any other."""
    kernel = the_kernel(image, target, name)
    body = the_loop(kernel)
    mix = kernel_loop.mix_of(body)
    product = "v_wmma_f32_16x16x16_" + ("bf16" if "_bf16" in image else "f16")
    assert sum(i.name == product for i in body) == mix["matrix"] == 4 * tiles
    reads = 4 * operands * (2 if target == "gfx1151" else 1)  # RDNA3's operands have both halves of 16 k in each lane
    loads = sum(4 if is_across else 2 * count for count, is_across in zip(pieces, across))
    writes = sum(4 * count if is_across else 2 * count for count, is_across in zip(pieces, across))
    pairs = sum(8 * count for count, is_across in zip(pieces, across) if is_across)
    assert (mix["memory"], mix["lds"]) == (loads, reads + writes)
    assert mix["vector"] == sum(i.name == "v_perm_b32" for i in body) == pairs
    assert mix["scratch"] == mix["lane move"] == 0
    assert kernel.usage["private_segment_fixed_size"] == kernel.usage["vgpr_spill_count"] == 0


@pytest.mark.parametrize("image, target, name, tiles, operands, pieces, across", RDNA)
def test_wmma_meetings_leave_loads_under_way(image, target, name, tiles, operands, pieces, across):
    """Tests that a half of a line is multiplied between a line's loads and the first write of them, and that nothing waits
    for them meanwhile."""
    body = the_loop(the_kernel(image, target, name))
    turns = body + body
    first = max(n for n, i in enumerate(turns[:len(body)]) if i.kind == "memory")
    write = next(n for n, i in enumerate(turns) if n > first and i.name.startswith("ds_store"))
    between = turns[first + 1:write]
    assert sum(i.kind == "matrix" for i in between) == 2 * tiles
    wait = next(n for n, i in enumerate(between) if i.kind == "wait" and re.search("vmcnt|loadcnt", i.name + i.operands))
    assert all(i.name == "v_perm_b32" or i.kind == "wait" for i in between[wait:])  # the write's own


# image, target, tiles of 16 x 16 a wave, its operands of a and of b, pieces of a thread for each 64 bytes of a row in LDS
RDNA_FP8 = [(f"gemm_fp8_wmma_{tile}", target, *form) for target in ("gfx1151", "gfx1201")
            for tile, form in (("128x128", (4 * 2, 4, 2, 4)), ("32x64", (2 * 1, 2, 1, 3)))]


@pytest.mark.parametrize("image, target, tiles, of_a, of_b, pieces", RDNA_FP8)
def test_wmma_loop_of_fp8_has_what_scales_and_codes_cost(image, target, tiles, of_a, of_b, pieces):
    """Tests that a turn, 128 of k, has its products, on gfx11 9 vector instructions for each four codes that become f16, and of
    scales of blocks alone an FMA for each partial, two in an instruction on gfx12, and the scales' own products and loads."""
    path = IMAGES / f"{image}.{target}.co"
    if not path.exists():
        pytest.skip(f"no {target} images in this build")
    widens = target == "gfx1151"
    for kernel in kernel_loop.read_kernels(str(path)):
        by_blocks = kernel.name.endswith("_blocks")
        body = the_loop(kernel)
        mix = kernel_loop.mix_of(body)
        name = "v_wmma_f32_16x16x16_" + ("f16" if widens else "fp8_fp8")
        assert sum(i.name == name for i in body) == mix["matrix"] == 8 * tiles
        loads = pieces * (4 if widens else 2)
        reads = (8 * 2 if widens else 4) * (of_a + of_b)
        assert (mix["memory"], mix["lds"]) == (loads + by_blocks * (of_a + 1), reads + loads)
        widening = 2 * 9 * loads if widens else 0
        fmas = 8 * tiles // (1 if widens else 2)
        least, most = (fmas, fmas + 8 + 2 * of_a) if by_blocks else (0, 0)
        assert widening + least <= mix["vector"] <= widening + most
        assert mix["scratch"] == mix["lane move"] == 0
        assert kernel.usage["private_segment_fixed_size"] == kernel.usage["vgpr_spill_count"] == 0


# image, target, of a tile of keys: matrix instructions, copies of 64 lanes to LDS, which are of keys alone on gfx942, and none of
# FP8, whose codes go through registers. Of each
# image there is a loop over pages and one over keys that lie in a row, both of two tiles.
ATTENTION = [(f"attention_mfma_{dim}_{kind}", target, (dim + dim_vo) // k, dim // 16 if target == "gfx942" else (dim + dim_vo) // 64)
             for target, k in (("gfx942", 8), ("gfx950", 16)) for kind in ("bf16", "f16")
             for dim, dim_vo in ((64, 64), (128, 128), (192, 128), (256, 256))]
ATTENTION += [(f"attention_mfma_{dim}_bf16_fp8", target, 2 * dim // k, 0) for target, k in (("gfx942", 8), ("gfx950", 16)) for dim in (64, 128)]


@pytest.mark.parametrize("image, target, matrix, copies", ATTENTION)
def test_attention_multiplies_all_the_time(image, target, matrix, copies):
    """Tests that a turn has its tiles' instructions, no moves to make room, and a wait for its own copies before each of
    its two barriers, which leaves the loads of v under way, on gfx950 the copies of two tiles."""
    bodies = the_kernel(image, target).matrix_loops()
    assert len(bodies) == 2
    for body in bodies:
        mix = kernel_loop.mix_of(body)
        assert (mix["matrix"], mix["lds copy"], mix["barrier"]) == (2 * matrix, 2 * copies, 2)
        assert mix["agpr move"] == 0 and mix["scratch"] == 0
        assert kernel_loop.waits_before_barriers(body)
        meetings = [n for n, i in enumerate(body) if i.kind == "barrier"]
        loads = 2 * copies if target == "gfx950" and copies else mix["memory"] // 2
        assert [body[n - 1].operands for n in meetings] == [f"vmcnt({loads}) lgkmcnt(0)"] * 2


# What a loop of matrix instructions may move to and from lanes: image, target, instructions in the loop. gemm.fp8_rows_* read
# the scale of b of each of eight K-blocks from the lane that loaded it. All others are of spilled SGPRs:
# gfx90a has no instructions for FP8: the masks and constants that take its codes apart crowd the strides of a page out. A
# tile of 32 keys pays 3 of its 2895 instructions for it, beside 64 matrix instructions of 64 cycles each.
LANE_MOVES = {("attention_64_bf16_fp8", "gfx90a"): 2, ("attention_128_bf16_fp8", "gfx90a"): 3,
              ("attention_128_f16_fp8", "gfx90a"): 2, ("attention_256_bf16_fp8", "gfx90a"): 1,
              ("attention_decode_bf16_fp8", "gfx90a"): 1}
LANE_MOVES |= {(f"gemm_rows_{tile}{form}", "gfx942"): 8 for tile in ("16x32", "32x64") for form in ("", "_full")}
LANE_MOVES |= {(f"gemm_flat_rows_{tile}", "gfx942"): 8 for tile in ("16x32", "32x64")}
IMAGE_LINE = re.compile(r'^QN_IMAGE\((\w+), *"[^"]+", *"[^"]+", *"[^"]*"(?:, *"([^"]+)")?\)', re.M)


def spills_allowed():
    """Returns, for each image, its contract: how many SGPRs its kernels may spill, by how targets' names begin."""
    return {m[1]: {name: int(most) for name, most in (word.split("=") for word in (m[2] or "").split())}
            for path in [*SOURCE.glob("ops/*/variants.def"), SOURCE / "probe/probes.def"] for m in IMAGE_LINE.finditer(path.read_text())}


def breaches_of(kernel, image, target, allowed):
    """Returns how a kernel breaks the contract of its image."""
    most = next((most for name, most in allowed[image].items() if target.startswith(name)), 0)
    usage = kernel.usage
    if usage["private_segment_fixed_size"] > 0 or usage["vgpr_spill_count"] > 0:
        yield f"{usage['private_segment_fixed_size']} bytes of scratch, {usage['vgpr_spill_count']} VGPRs spilled"
    if usage["sgpr_spill_count"] > most:
        yield f"{usage['sgpr_spill_count']} SGPRs spilled; the image's line in variants.def allows {most}"
    for body in kernel.matrix_loops():
        moves = kernel_loop.mix_of(body)["lane move"]
        if moves > LANE_MOVES.get((image, target), 0):
            yield f"{moves} moves to or from lanes in the loop at {body[0].address:#x}"


def test_every_image_keeps_its_contract():
    allowed, breaches, seen = spills_allowed(), [], 0
    for path in sorted(IMAGES.glob("*.gfx*.co")):
        image, target, _ = path.name.split(".")
        for kernel in kernel_loop.read_kernels(str(path)):
            breaches += [f"{path.name}: {kernel.name}: {words}" for words in breaches_of(kernel, image, target, allowed)]
            seen += 1
    assert seen > 0 or not list(IMAGES.glob("*.gfx*.co"))
    assert not breaches, "\n".join(breaches)


def build_with(tmp_path, source, *flags):
    """Returns the kernel of a device source, compiled for gfx942 as the build does, with further flags."""
    clang = shutil.which("clang-22") or shutil.which("clang")
    image = tmp_path / "image.co"
    subprocess.run([clang, "-std=gnu23", "-O3", "-ffreestanding", "-nogpulib", "-fno-slp-vectorize", "-ffp-contract=off",
                    "--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", f"-I{SOURCE}/gpu", *flags, "-o", image, source], check=True)
    (kernel,) = kernel_loop.read_kernels(str(image))
    return kernel


def test_the_contract_sees_spilled_sgprs(tmp_path):
    kernel = build_with(tmp_path, SOURCE / "ops/gemm/gemm_pack_gpu.c",
                        "-Dqk_gemm_pack=__attribute__((amdgpu_num_sgpr(16)))qk_gemm_pack")
    (breach,) = breaches_of(kernel, "gemm_pack", "gfx942", spills_allowed())
    assert re.fullmatch(r"\d+ SGPRs spilled; .* allows 0", breach)


LANE_LOOP = """#include "gpu.h"
typedef float f32x16 __attribute__((ext_vector_type(16)));
QD_KERNEL(64) qk_loop(f32x16 *sum, const float *a, int count, int lane) {
    f32x16 s = sum[qd_thread()];
    for (int i = 0; i < count; i++) {
        const float x = a[i * 64 + qd_thread()];
        s = __builtin_amdgcn_mfma_f32_32x32x2f32(x, LOOK, s, 0, 0, 0);
    }
    sum[qd_thread()] = s;
}
"""


@pytest.mark.parametrize("look, breaches", [("x", 0), ("(float)__builtin_amdgcn_readlane((int)x, lane)", 1)])
def test_the_contract_sees_lane_moves_in_a_loop(tmp_path, look, breaches):
    source = tmp_path / "loop_gpu.c"
    source.write_text(LANE_LOOP)
    kernel = build_with(tmp_path, source, f"-DLOOK={look}")
    found = list(breaches_of(kernel, "gemm_pack", "gfx942", spills_allowed()))
    assert [bool(re.match("1 moves to or from lanes in the loop", words)) for words in found] == [True] * breaches


def test_loops_are_found_where_their_parts_lie_apart():
    """Tests a loop of blocks 0: entry, 1: head, 2: matrix, 3: branch to 6, 4: exit, 5: end; 6: the loop's part behind
    the end, back to 1. Around it is a loop from 4 to 0 that is not the innermost."""
    after = [[1], [2], [3], [6, 4], [0, 5], [], [1]]
    assert kernel_loop.innermost_loops(after, [n == 2 for n in range(7)]) == [[1, 2, 3, 6]]
    assert kernel_loop.innermost_loops(after, [n == 5 for n in range(7)]) == []
    assert kernel_loop.innermost_loops(after, [n == 4 for n in range(7)]) == [[0, 1, 2, 3, 4, 6]]


def test_no_ptx_keeps_variables_in_memory():
    """Tests that no PTX has a .local array, which is scratch whatever the driver makes of the PTX."""
    for path in sorted(IMAGES.glob("*.sm_*.co")):
        text = path.read_text()
        assert ".entry" in text and ".local" not in text, path.name


# A multiprocessor has 65536 registers, and a thread at most 255 of them.
REGISTERS, UNBOUND_THREADS = 65536, 256
BOUND = re.compile(r"^// quern: (\w+) .*?\.(maxntid|maxnreg) (\d+)", re.M)


def bounds_of(path):
    """Returns the most threads for which a PTX image's kernels leave registers, for those of which it says anything."""
    return {name: int(number) if word == "maxntid" else REGISTERS // int(number) for name, word, number in BOUND.findall(path.read_text())}


def test_ptx_leaves_registers_for_the_largest_workgroup():
    """Tests that PTX bounds the registers of every kernel whose workgroups may have so many threads, as its AMD image says, that not
    all can have 255: the driver would refuse the launch."""
    seen = 0
    for path in sorted(IMAGES.glob("*.sm_*.co")):
        for amd in sorted(IMAGES.glob(path.name.partition(".")[0] + ".gfx*.co"))[:1]:
            bounds, threads = bounds_of(path), {k.name: k.usage["max_flat_workgroup_size"] for k in kernel_loop.read_kernels(str(amd))}
            short = {name for name, most in threads.items() if most > bounds.get(name, UNBOUND_THREADS)}
            assert not short, f"{path.name}: {short}"
            seen += sum(most > UNBOUND_THREADS for most in threads.values())
    assert seen > 0 or not list(IMAGES.glob("*.sm_*.co"))


def test_the_wait_check_sees_a_missing_wait():
    kernel = the_kernel("gemm_fp8_128x128")
    body = [i for i in the_loop(kernel) if not (i.kind == "wait" and "vmcnt" in i.operands)]
    assert not kernel_loop.waits_before_barriers(body)
