#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows the registers of a device image's kernels, and the instructions in each loop that holds matrix instructions.
For developers, and for tests/kernel_loop_test.py.

    tools/kernel_loop.py build/release/images/gemm_fp8_256x128.gfx942.co
"""
import argparse
import functools
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field

USAGE = ("vgpr_count", "agpr_count", "sgpr_count", "vgpr_spill_count", "sgpr_spill_count",
         "private_segment_fixed_size", "group_segment_fixed_size", "max_flat_workgroup_size")


@dataclass(slots=True)
class Instruction:
    address: int
    name: str  # mnemonic
    operands: str
    kind: str
    target: int | None = None  # branches: where to


@dataclass
class Kernel:
    name: str
    instructions: list[Instruction] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)

    def matrix_loops(self) -> list[list[Instruction]]:
        """Returns the innermost loops that hold matrix instructions, in the order of the code, wherever their parts
        lie."""
        wanted = [i.kind == "matrix" for i in self.instructions]
        loops = innermost_loops(self.successors(), wanted) if any(wanted) else []
        return [[self.instructions[n] for n in loop] for loop in sorted(loops)]

    def successors(self) -> list[list[int]]:
        """Returns, for each instruction, which ones may come next."""
        index = {i.address: n for n, i in enumerate(self.instructions)}
        last = len(self.instructions) - 1
        return [([index[i.target]] if i.target in index else [])
                + ([n + 1] if n < last and i.name not in ("s_branch", "s_endpgm", "s_setpc_b64") else [])
                for n, i in enumerate(self.instructions)]


def cycles(nodes: set[int], after: list[list[int]]) -> list[list[int]]:
    """Returns the strongly connected parts of a graph that have an edge at all (Tarjan's algorithm, without
    recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    open_nodes: list[int] = []
    found = []
    for root in sorted(nodes):
        path = [root] if root not in order else []
        while path:
            node = path[-1]
            if node not in order:
                order[node] = low[node] = len(order)
                open_nodes.append(node)
            nexts = [n for n in after[node] if n in nodes]
            if fresh := [n for n in nexts if n not in order]:
                path.append(fresh[0])
                continue
            path.pop()
            low[node] = min([low[node]] + [low[n] for n in nexts if n in low])
            if low[node] == order[node]:
                at = len(open_nodes) - 1 - open_nodes[::-1].index(node)
                part, open_nodes[at:] = open_nodes[at:], []
                for n in part:
                    del low[n]  # closed: no part of what is still open
                if len(part) > 1 or node in nexts:
                    found.append(sorted(part))
    return found


def innermost_loops(after: list[list[int]], wanted: list[bool], nodes: set[int] | None = None) -> list[list[int]]:
    """Returns the loops that hold a wanted node and no smaller loop that does. A loop is entered at its head."""
    nodes = set(range(len(after))) if nodes is None else nodes
    loops: list[list[int]] = []
    if not any(wanted):
        return loops
    for loop in cycles(nodes, after):
        if not any(wanted[n] for n in loop):
            continue
        inside = set(loop)
        heads = {n for before in nodes - inside for n in after[before] if n in inside} or {loop[0]}
        loops += innermost_loops(after, wanted, inside - heads) or [loop]
    return loops


@functools.cache
def kind_of_name(name: str) -> str:
    if "mfma" in name or "wmma" in name:
        return "matrix"
    if name.startswith("v_accvgpr"):
        return "agpr move"
    if name.startswith(("v_readlane", "v_writelane")):
        return "lane move"
    if name.startswith("v_"):
        return "vector"
    if name.startswith("ds_"):
        return "lds"
    if name.startswith("scratch_"):
        return "scratch"
    if name.startswith(("buffer_", "global_", "flat_")):
        return "lds copy" if "_lds_" in name else "memory"
    if name.startswith(("s_wait", "s_delay")):
        return "wait"
    if name.startswith("s_barrier"):
        return "barrier"
    if name.startswith(("s_branch", "s_cbranch")):
        return "branch"
    return "nop" if name == "s_nop" else "scalar"


def kind_of(name: str, operands: str) -> str:
    kind = kind_of_name(name)
    return "lds copy" if kind == "memory" and re.search(r"\blds\b", operands) else kind


def tool(name: str) -> str:
    for candidate in (f"{name}-22", name):
        if path := shutil.which(candidate):
            return path
    sys.exit(f"kernel_loop: neither {name}-22 nor {name} is installed")


def output_of(*command: str) -> str:
    with tempfile.TemporaryFile("w+") as file:  # not a pipe, as llvm-objdump writes each line by itself
        subprocess.run(command, check=True, stdout=file)
        file.seek(0)
        return file.read()


def target_of(address: int, name: str, operands: str) -> int | None:
    """Returns where a branch goes: so many dwords on from the next instruction, in 16 bits with a sign."""
    if not name.startswith(("s_branch", "s_cbranch", "s_call")):
        return None
    words = int(operands.split(", ")[-1])
    return address + 4 + 4 * (words - 65536 if words > 32767 else words)


def read_code(disassembly: str) -> dict[str, Kernel]:
    kernels: dict[str, Kernel] = {}
    kernel = None
    for line in disassembly.splitlines():
        text, _, place = line.partition("// ")
        if not line.startswith("\t"):
            if m := re.match(r"[0-9a-f]+ <(\w+)>:", line):
                kernel = kernels[m[1]] = Kernel(m[1])
        elif kernel and place:
            name, _, operands = text.strip().partition(" ")
            address, operands = int(place.partition(":")[0], 16), operands.strip()
            kernel.instructions.append(
                Instruction(address, name, operands, kind_of(name, operands), target_of(address, name, operands)))
    return kernels


def read_kernels(path: str) -> list[Kernel]:
    """Returns every kernel of an image, with its code and what its metadata says it uses."""
    code = read_code(output_of(tool("llvm-objdump"), "-d", path))
    notes = output_of(tool("llvm-readelf"), "--notes", path)
    kernels = []
    for block in re.split(r"\n  - (?=\.)", notes)[1:]:
        if name := re.search(r"\.symbol:\s+(\w+)\.kd", block):
            kernel = code[name[1]]
            found = re.findall(rf"\.({'|'.join(USAGE)}):\s+(\d+)", block)
            kernel.usage = {key: int(value) for key, value in found}
            kernels.append(kernel)
    return kernels


def mix_of(body: list[Instruction]) -> Counter:
    return Counter(i.kind for i in body)


def waits_before_barriers(body: list[Instruction]) -> bool:
    """Returns whether each barrier that a copy to LDS precedes has a wait for memory between, the loop taken twice."""
    pending = False
    for i in body + body:
        if i.kind == "lds copy":
            pending = True
        elif i.kind == "wait" and "vmcnt" in i.operands:
            pending = False
        elif i.kind == "barrier" and pending:
            return False
    return True


def show(path: str) -> None:
    for kernel in read_kernels(path):
        print(kernel.name, " ".join(f"{k}={v}" for k, v in kernel.usage.items()))
        for body in kernel.matrix_loops():
            mix = mix_of(body)
            print(f"  loop at {body[0].address:#x}: {len(body)} instructions,",
                  ", ".join(f"{count} {kind}" for kind, count in mix.most_common()))
            print(f"    vector instructions for each matrix instruction: "
                  f"{(mix['vector'] + mix['agpr move'] + mix['lane move']) / mix['matrix']:.3f}")
            print("    waits:", "; ".join(i.operands for i in body if i.name == "s_waitcnt"))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # "| head" ends quietly
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("image", nargs="+", help="code object, as the build leaves it in images/")
    for image in parser.parse_args().image:
        show(image)
