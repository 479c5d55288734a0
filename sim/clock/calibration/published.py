# SPDX-License-Identifier: Apache-2.0
"""The published times of kernels on silicon (published.csv), and the work that each of them does."""

import csv
import dataclasses
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
HEAD = 128  # head_dim of the attention kernels
# family -> bytes of an element of A and B (or Q, K, V), type of the matrix instructions
FAMILIES = {"fp8": (1, "f8"), "int8": (1, "i8"), "bf16": (2, "bf16"), "fmha": (2, "bf16")}


@dataclasses.dataclass(frozen=True)
class Row:
    family: str
    gpu: str
    shape: tuple  # M, N, K of a GEMM; B, H, S of attention
    parts: int  # into which a GEMM's K is split
    out: str  # type of the result
    code_object: str  # file name without .co
    us: float
    source: str
    split: str  # "fit": numbers may be fitted to it; "kept": kept back to judge them

    @property
    def name(self):
        shape = "x".join(map(str, self.shape))
        parts = f"/{self.parts}" if self.parts > 1 else ""
        return f"{self.family} {self.gpu} {shape}{parts} {self.code_object}"

    @property
    def chip_file(self):
        return HERE / f"chips/{self.gpu}.chip"

    @property
    def arch(self):
        """The architecture that the GPU's chip file has as its base."""
        return next(line.split()[1] for line in self.chip_file.read_text().splitlines() if line.startswith("base "))

    @property
    def waits_for_others(self):
        """Whether workgroups wait for one that zeroes C, which may be outside a sample."""
        return self.arch == "gfx950" and self.code_object.endswith("_clean")

    @property
    def is_causal(self):
        return "causal" in self.code_object

    @property
    def copied_bytes(self):
        """Bytes that the published time's call moves behind the kernel: attn-dsl-bench turns the axes of the result."""
        if not self.source.startswith("attn-dsl-bench"):
            return 0
        batch, heads, length = self.shape
        return 2 * batch * heads * length * HEAD * FAMILIES[self.family][0]

    @property
    def operations(self):
        """Multiplications and additions."""
        if self.family == "fmha":
            batch, heads, length = self.shape
            return 4 * batch * heads * length**2 * HEAD // (2 if self.is_causal else 1)
        m, n, k = self.shape
        return 2 * m * n * k

    @property
    def bytes(self):
        """Bytes that must move if each tensor moves once."""
        element, _ = FAMILIES[self.family]
        if self.family == "fmha":
            batch, heads, length = self.shape
            return 4 * batch * heads * length * HEAD * element
        m, n, k = self.shape
        scales = 4 * (k // 128) * (m + n // 128) if self.family == "fp8" else 0
        return (m + n) * k * element + scales + m * n * (4 if self.out == "f32" else 2)


def read(path=HERE / "published.csv"):
    with open(path, newline="") as file:
        return [Row(r["family"], r["gpu"], tuple(map(int, r["shape"].split("x"))), int(r["parts"]), r["out"],
                    r["code_object"], float(r["us"]), r["source"], r["split"]) for r in csv.DictReader(file)]
