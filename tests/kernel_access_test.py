# SPDX-License-Identifier: Apache-2.0
"""How wide the row ops' kernels load and store, read from the disassembly of every AMD image and the text of every PTX.

A kernel whose rows are aligned moves elements by 16 bytes and nothing less: eight of f16 or bf16, two times four of
f32. What is narrower is listed here with its reason. Kernels for any shape take elements one at a time, by design, and
run only where the others say that they cannot (`quern check OP` prints why).
"""
import functools
import os
import re
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(os.environ["QUERN_SOURCE_DIR"]) / "tools"))
import kernel_loop  # noqa: E402

IMAGES = Path(os.environ["QUERN_BUILD_DIR"]) / "images"

CODES = 8      # the FP8 or int8 codes of a lane's eight elements
WORD = 4       # a scale, an index, a UE8M0 word
BYTE = 1       # a UE8M0 exponent
HALF_RUN = 8   # four table values of 16 bits, for eight elements that turn in pairs
END = "an element at a time where a row's end cuts a run"
ANY = None     # any shape: no claim

# image, kernels, what may be loaded and stored beside 16 bytes, whether 16 bytes are loaded and stored at all. The first
# line that fits counts.
RULES = [
    ("norm", "*_sum_quant_*", {WORD}, {CODES, WORD}, "ls"),
    ("norm", "*_quant_*", {WORD}, {CODES, WORD}, "l"),
    ("norm", "*_any_*", {WORD}, {CODES, WORD}, "ls"),  # any form, of whole aligned runs
    ("norm", "*_full_*", {WORD}, {CODES, WORD}, "ls"),
    ("norm", "*", set(), set(), "ls"),
    ("norm_any", "*", ANY, ANY, ""),
    ("rope", "*_quant_*", {WORD, HALF_RUN}, {CODES}, "l"),
    ("rope", "*", {WORD, HALF_RUN}, set(), "ls"),
    ("rope_any", "*", ANY, ANY, ""),
    ("activation", "*_token_*", set(), {CODES, WORD}, "l"),
    ("activation", "*", {WORD}, {CODES, WORD}, "ls"),
    ("activation_any", "*", ANY, ANY, ""),
    ("kvcache", "qk_kvcache_any", ANY, ANY, ""),
    ("kvcache", "qk_kvcache_positions", ANY, ANY, ""),  # one int32 a token
    ("kvcache", "qk_kvcache_gather", ANY, ANY, ""),  # any shape; 16 bytes where aligned
    ("kvcache", "qk_kvcache_groups", ANY, ANY, ""),  # any shape, one element a lane
    ("kvcache", "qk_kvcache_seq_lens", ANY, ANY, ""),  # one int32 a sequence
    ("kvcache", "*_quant_*", {WORD}, {CODES}, "l"),
    ("kvcache", "*", {WORD}, set(), "ls"),
    ("moe_route", "*", ANY, ANY, ""),  # logits at any element, one expert a lane
    ("moe_sort", "*", ANY, ANY, ""),  # one int32 a pair
    ("moe_activate", "*", ANY, ANY, ""),  # rows of any length and place
    ("moe_rows", "*", ANY, ANY, ""),  # rows of any length and place
    ("quantize", "qk_dequantize_*", {CODES, WORD, END}, {END}, "s"),
    ("quantize", "*", {END}, {CODES, WORD, END}, "l"),
    ("quantize_rows", "qk_rows_any_*", ANY, ANY, ""),
    ("quantize_rows", "qk_rows_maxima_*", {END}, {WORD}, "l"),
    ("quantize_rows", "*", {WORD}, {CODES, WORD, BYTE}, "l"),
    ("gemm_pack", "*", {WORD, END}, {WORD}, "ls"),
    ("packbits", "*", ANY, ANY, ""),  # eight truth values to a byte, segments begin at any byte
    ("scales", "*", ANY, ANY, ""),  # scales, a 128th of the data
]

WIDTHS = {"byte": 1, "ubyte": 1, "sbyte": 1, "b8": 1, "u8": 1, "i8": 1, "short": 2, "ushort": 2, "sshort": 2, "b16": 2,
          "u16": 2, "i16": 2, "dword": 4, "b32": 4, "dwordx2": 8, "b64": 8, "dwordx3": 12, "b96": 12, "dwordx4": 16,
          "b128": 16}
AMD_ACCESS = re.compile(r"(?:global|buffer|flat)_(load|store)_(?:d16_)?(?:hi_)?([a-z]+\d*(?:x\d)?)(?:_d16)?(?:_hi)?")
PTX_ACCESS = re.compile(r"\b(ld|st)((?:\.[\w:]+)+)")
PTX_ENTRY = re.compile(r"\.entry (\w+)\(.*?\n}", re.S)


@functools.cache
def amd_kernels(path):
    return kernel_loop.read_kernels(str(path))


def amd_accesses(path):
    """Returns, for each kernel, the widths in bytes of its loads and stores."""
    for kernel in amd_kernels(path):
        found = {"l": set(), "s": set()}
        for i in kernel.instructions:
            if i.kind == "memory" and (m := AMD_ACCESS.fullmatch(i.name)):
                found[m[1][0]].add(WIDTHS[m[2]])
        yield kernel.name, found


def ptx_accesses(path):
    for entry in PTX_ENTRY.finditer(path.read_text()):
        found = {"l": set(), "s": set()}
        for m in PTX_ACCESS.finditer(entry[0]):
            words = m[2].split(".")
            if "global" in words:
                count = next((int(w[1:]) for w in words if re.fullmatch(r"v\d", w)), 1)
                found[m[1][0] if m[1] == "ld" else "s"].add(count * int(re.search(r"\d+$", words[-1])[0]) // 8)
        yield entry[1], found


def accesses_of(path):
    return list(ptx_accesses(path) if ".sm_" in path.name else amd_accesses(path))


def rule_for(image, kernel):
    for rule in RULES:
        if rule[0] == image and fnmatch(kernel, rule[1]):
            return rule
    return None


def allowed(widths, kernel):
    """Returns the allowed widths. END stands for the kernel's element, and for one code."""
    element = 4 if kernel.endswith("f32") else 2
    return {16} | (widths - {END}) | ({element, 1} if END in widths else set())


def breach_of(rule, kernel, found):
    """Returns how a kernel breaks its rule, or an empty text."""
    _, _, loads, stores, wide = rule
    if loads is ANY:
        return ""
    narrow = sorted(found["l"] - allowed(loads, kernel)), sorted(found["s"] - allowed(stores, kernel))
    missing = [side for side in wide if 16 not in found[side]]
    if narrow[0] or narrow[1] or missing:
        return f"{kernel}: loads of {narrow[0]} bytes, stores of {narrow[1]}, no 16 bytes in {missing}"
    return ""


def images_of(name):
    return sorted(IMAGES.glob(f"{name}.*.co"))


@pytest.mark.parametrize("image", sorted({rule[0] for rule in RULES}))
def test_kernels_move_16_bytes(image):
    paths = images_of(image)
    if not paths:
        pytest.skip(f"no image of {image} in this build")
    for path in paths:
        kernels = accesses_of(path)
        assert kernels, f"{path.name} has no kernel"
        for kernel, found in kernels:
            assert found["l"] or found["s"], f"{path.name}: {kernel} touches no memory"
            rule = rule_for(image, kernel)
            assert rule, f"{path.name}: {kernel} stands in no line of RULES"
            assert not breach_of(rule, kernel, found), path.name


@pytest.mark.parametrize("image", sorted({rule[0] for rule in RULES}))
def test_kernels_use_no_scratch(image):
    for path in images_of(image):
        if ".sm_" in path.name:
            assert ".local" not in path.read_text(), path.name
            continue
        for kernel in amd_kernels(path):
            assert kernel.usage["private_segment_fixed_size"] == 0, f"{path.name}: {kernel.name}"
            assert not any(i.kind == "scratch" for i in kernel.instructions), f"{path.name}: {kernel.name}"


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_attention_on_amd_uses_no_scratch(dim):
    for types in "bf16", "f16", "bf16_fp8", "f16_fp8":
        for path in images_of(f"attention_{dim}_{types}"):
            if ".sm_" not in path.name:
                for kernel in amd_kernels(path):
                    assert kernel.usage["private_segment_fixed_size"] == 0, path.name
                    assert not any(i.kind == "scratch" for i in kernel.instructions), path.name


def test_the_rules_see_narrow_access():
    """Tests that the any-shape kernels of norm break the rules of norm's others, on every target."""
    paths = images_of("norm_any")
    if not paths:
        pytest.skip("no image of norm_any in this build")
    for path in paths:
        for kernel, found in accesses_of(path):
            assert breach_of(rule_for("norm", kernel), kernel, found), f"{path.name}: {kernel}"
