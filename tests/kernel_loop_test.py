# SPDX-License-Identifier: Apache-2.0
"""The contract of the gfx942 FP8 gemm kernels, read from their code: the loop, its mix, registers, waits."""
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(os.environ["QUERN_SOURCE_DIR"]) / "tools"))
import kernel_loop  # noqa: E402

IMAGES = Path(os.environ["QUERN_BUILD_DIR"]) / "images"
BLOCKS = 2  # K-blocks of 128 that one turn of the loop runs
MFMA_PER_TILE = 8  # of 32 x 32 x 16, for a 32 x 32 tile and 128 of k

# image, tiles of 32 x 32 a wave, vector instructions allowed for each MFMA, whether a goes to LDS by copies
KERNELS = [
    ("gemm_fp8_256x128", 4 * 2, 2.25, True),
    ("gemm_fp8_128x128", 2 * 2, 2.25, True),
    ("gemm_fp8_fn_128x128", 2 * 2, None, False),  # repairs a on the way: more vector work
]


def the_kernel(image):
    path = IMAGES / f"{image}.gfx942.co"
    if not path.exists():
        pytest.skip("no gfx942 images in this build")
    (kernel,) = kernel_loop.read_kernels(str(path))
    return kernel


def the_loop(kernel):
    bodies = kernel.matrix_loops()
    return max(bodies, key=lambda body: kernel_loop.mix_of(body)["matrix"])


@pytest.mark.parametrize("image, tiles, ratio, copies", KERNELS)
def test_loop_has_the_tiles_mfmas(image, tiles, ratio, copies):
    body = the_loop(the_kernel(image))
    mfmas = [i for i in body if i.name == "v_mfma_f32_32x32x16_fp8_fp8"]
    assert len(mfmas) == BLOCKS * MFMA_PER_TILE * tiles
    assert kernel_loop.mix_of(body)["matrix"] == len(mfmas)


@pytest.mark.parametrize("image, tiles, ratio, copies", KERNELS)
def test_loop_is_lean(image, tiles, ratio, copies):
    mix = kernel_loop.mix_of(the_loop(the_kernel(image)))
    assert mix["agpr move"] == 0 and mix["scratch"] == 0
    if ratio:
        assert mix["vector"] <= ratio * mix["matrix"]
    # Two FMAs for each MFMA promote its partial to the sum.
    assert mix["vector"] >= 2 * mix["matrix"]


@pytest.mark.parametrize("image, tiles, ratio, copies", KERNELS)
def test_kernel_needs_no_scratch(image, tiles, ratio, copies):
    usage = the_kernel(image).usage
    assert usage["private_segment_fixed_size"] == 0
    assert usage["vgpr_spill_count"] == 0


@pytest.mark.parametrize("image, tiles, ratio, copies", KERNELS)
def test_copies_are_waited_for_before_barriers(image, tiles, ratio, copies):
    kernel = the_kernel(image)
    body = the_loop(kernel)
    assert (kernel_loop.mix_of(body)["lds copy"] > 0) == copies
    assert kernel_loop.mix_of(body)["barrier"] == BLOCKS
    assert kernel_loop.waits_before_barriers(body)


@pytest.mark.parametrize("image", [k[0] for k in KERNELS if k[3]])
def test_meetings_wait_for_the_copies_and_nothing_younger(image):
    """A full wait would stall the loop; a shorter one would read what has not landed."""
    body = the_loop(the_kernel(image))
    turns = body + body
    meetings = [n for n, i in enumerate(turns) if i.kind == "barrier" and n >= len(body)]
    for n in meetings:
        younger = 0
        for i in reversed(turns[:n]):
            if i.kind == "lds copy":
                break
            younger += i.kind == "memory"
        assert turns[n - 1].operands == f"vmcnt({younger}) lgkmcnt(0)"


def test_no_image_of_this_build_spills():
    for path in sorted(IMAGES.glob("*.gfx*.co")):
        for kernel in kernel_loop.read_kernels(str(path)):
            assert kernel.usage["private_segment_fixed_size"] == 0, f"{path.name}: {kernel.name}"


def test_no_ptx_keeps_variables_in_memory():
    """What the driver makes of PTX is its own; but a .local array is scratch whatever it does."""
    for path in sorted(IMAGES.glob("*.sm_*.co")):
        text = path.read_text()
        assert ".entry" in text and ".local" not in text, path.name


def test_the_wait_check_sees_a_missing_wait():
    kernel = the_kernel("gemm_fp8_128x128")
    body = [i for i in the_loop(kernel) if not (i.kind == "wait" and "vmcnt" in i.operands)]
    assert not kernel_loop.waits_before_barriers(body)
