# SPDX-License-Identifier: Apache-2.0
"""Small kernels on the simulated GPUs: assembled by llvm-mc, launched through HIP, on memory that NumPy sees too."""
import ctypes
import functools
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass, field

import numpy as np

CHIPS = ("gfx90a", "gfx942", "gfx950", "gfx1151", "gfx1201")
CDNA, RDNA = CHIPS[:3], CHIPS[3:]
HIP = ctypes.CDLL(os.path.join(os.environ["QUERN_BUILD_DIR"], "libquernsim.so"))
HIP.hipGetErrorString.restype = ctypes.c_char_p
WORKGROUP = 256


def hip(name, *arguments):
    error = getattr(HIP, name)(*arguments)
    if error:
        raise RuntimeError(f"{name}: {HIP.hipGetErrorString(error).decode()}")


def start():
    """Makes one device of each chip, where a wave that does not end is stopped. The environment's own QUERN_SIM may set
    everything else."""
    options = [os.environ.get("QUERN_SIM", ""), "limit=1000000;mfma=exact", "arch=" + ",".join(CHIPS)]
    os.environ["QUERN_SIM"] = ";".join(filter(None, options))
    hip("hipInit", 0)


def is_rdna(chip):
    return chip in RDNA


# ---- memory that host and devices share
class Memory:
    """Pinned memory, which has one address on both sides. It is never given back: a test's arrays live in its pool."""
    PAGE = 1 << 26

    def __init__(self):
        self.pages, self.left, self.at = [], 0, 0

    def array(self, shape, dtype):
        count = int(np.prod(shape, dtype=np.int64))
        num_bytes = max(count * np.dtype(dtype).itemsize, 4) + 255 & ~255
        if num_bytes > self.left:
            page = ctypes.c_void_p()
            size = max(num_bytes, self.PAGE)
            hip("hipHostMalloc", ctypes.byref(page), ctypes.c_size_t(size), 0)
            self.left, self.at = size, page.value
            self.pages.append(page)
        raw = (ctypes.c_uint8 * num_bytes).from_address(self.at)
        self.at += num_bytes
        self.left -= num_bytes
        return np.frombuffer(raw, np.uint8)[:count * np.dtype(dtype).itemsize].view(dtype).reshape(shape)

    def free(self):
        for page in self.pages:
            hip("hipHostFree", page)
        self.pages, self.left = [], 0


class Output:
    """Room for results, the same for every launch."""

    def __init__(self):
        self.room = None

    def array(self, count, words):
        if self.room is None or len(self.room) < count * words:
            self.room = MEMORY.array(count * words, np.uint32)
        return self.room[:count * words].reshape(count, words)


MEMORY = Memory()
MEMORY_OUT = Output()


def shared(host):
    """Returns a copy of an array that the device can read."""
    host = np.asarray(host)
    out = MEMORY.array(host.shape, host.dtype)
    out[...] = host
    return out


# ---- kernels
@dataclass
class Kernel:
    """A kernel's text and what its descriptor says. s[0:1] point to its arguments, eight-byte words that it loads
    itself; {group} is the SGPR with its workgroup's number; v0 the work-item."""
    name: str
    body: str
    arguments: int = 4
    lds: int = 0
    mode: dict = field(default_factory=dict)  # directives of the kernel descriptor

    def count(self, letter):
        """Returns how many vector registers the kernel names, in the unit of allocation: the simulator clears them all for
        each wave."""
        named = re.findall(rf"\b{letter}(?:\[\d+:)?(\d+)", self.body)
        return max(map(int, named), default=-1) + 8 & ~7

    def text(self, chip):
        vgprs = max(self.count("v"), 8)
        agprs = self.count("a") if chip in CDNA else 0
        mode = {"float_denorm_mode_32": 3, "float_denorm_mode_16_64": 3, **self.mode}
        if chip == "gfx1201":
            mode = {k: v for k, v in mode.items() if k not in ("ieee_mode", "dx10_clamp")}
        if chip in CDNA:
            mode["accum_offset"] = vgprs
        directives = "\n".join(f".amdhsa_{key} {value}" for key, value in mode.items())
        body = self.body.format(group="ttmp9" if chip == "gfx1201" else "s2")
        return f"""
.globl {self.name}
.type {self.name},@function
.p2align 8
{self.name}:
{body}
s_endpgm
.rodata
.p2align 6
.amdhsa_kernel {self.name}
.amdhsa_group_segment_fixed_size {self.lds}
.amdhsa_kernarg_size {8 * self.arguments}
.amdhsa_user_sgpr_kernarg_segment_ptr 1
.amdhsa_next_free_vgpr {vgprs + agprs}
.amdhsa_next_free_sgpr 96
{directives}
.end_amdhsa_kernel
.text
"""

    def metadata(self, chip):
        arguments = "".join(f"\n      - {{.offset: {8 * i}, .size: 8, .value_kind: by_value}}"
                            for i in range(self.arguments))
        return f"""
  - .name: {self.name}
    .symbol: {self.name}.kd
    .kernarg_segment_size: {8 * self.arguments}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {self.lds}
    .private_segment_fixed_size: 0
    .wavefront_size: {32 if is_rdna(chip) else 64}
    .sgpr_count: 96
    .vgpr_count: {max(self.count('v'), 8)}
    .max_flat_workgroup_size: 1024
    .args:{arguments}"""


def assemble(chip, kernels):
    """Returns the code object that holds all kernels."""
    text = f'.amdgcn_target "amdgcn-amd-amdhsa--{chip}"\n.amdhsa_code_object_version 5\n.text\n'
    text += "".join(kernel.text(chip) for kernel in kernels)
    text += ".amdgpu_metadata\n---\namdhsa.version: [1, 2]\namdhsa.kernels:"
    text += "".join(kernel.metadata(chip) for kernel in kernels) + "\n...\n.end_amdgpu_metadata\n"
    with tempfile.TemporaryDirectory() as folder:
        source, obj, image = (os.path.join(folder, name) for name in ("k.s", "k.o", "k.co"))
        with open(source, "w", encoding="ascii") as file:
            file.write(text)
        features = ["-mattr=+real-true16"] if is_rdna(chip) else []
        done = subprocess.run(["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={chip}", *features,
                               "-filetype=obj", source, "-o", obj], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SyntaxError(f"{chip}: {done.stderr[:4000]}")
        subprocess.run(["ld.lld-22", "-shared", obj, "-o", image], check=True)
        with open(image, "rb") as file:
            return file.read()


class Module:
    """Kernels assembled and loaded together; one start of the assembler for many kernels."""

    def __init__(self, chip, kernels):
        self.chip, self.module = chip, ctypes.c_void_p()
        self.arguments = {kernel.name: kernel.arguments for kernel in kernels}
        hip("hipSetDevice", CHIPS.index(chip))
        hip("hipModuleLoadData", ctypes.byref(self.module), assemble(chip, kernels))

    @functools.cache  # pylint: disable=method-cache-max-size-none
    def function(self, name):
        out = ctypes.c_void_p()
        hip("hipModuleGetFunction", ctypes.byref(out), self.module, name.encode())
        return out

    def launch(self, name, arguments, groups=1, threads=WORKGROUP, lds=0):
        """Runs a kernel and waits for it. Arguments are shared arrays (their address is passed) or numbers."""
        words = np.zeros(self.arguments[name], np.uint64)
        for i, value in enumerate(arguments):
            words[i] = value.ctypes.data if isinstance(value, np.ndarray) else value & 2**64 - 1
        size = ctypes.c_size_t(words.nbytes)
        extra = (ctypes.c_void_p * 5)(1, words.ctypes.data, 2, ctypes.addressof(size), 3)
        hip("hipSetDevice", CHIPS.index(self.chip))
        try:
            hip("hipModuleLaunchKernel", self.function(name), groups, 1, 1, threads, 1, 1, lds, None, None, extra)
            hip("hipDeviceSynchronize")
        except RuntimeError:
            HIP.hipDeviceReset()
            raise
