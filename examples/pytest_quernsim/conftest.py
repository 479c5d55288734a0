# SPDX-License-Identifier: Apache-2.0
"""pytest on quern's simulated GPU: a test fails if a kernel that it launched did wrong. Copy this file beside your tests.

It has to come before whatever loads a HIP library: pytest reads it first. QUERN names the command, if it is not on PATH;
QUERN_SIM may choose the chip and the checks ("arch=gfx1201;check=race,bounds"; default: gfx942, all checks)."""
import ctypes
import json
import os
import pathlib
import subprocess
import tempfile

import pytest

_quern = os.environ.get("QUERN", "quern")
_links = json.loads(subprocess.check_output([_quern, "sim", "--env"]))["folder"]
_folder = tempfile.TemporaryDirectory()  # each process of pytest-xdist has its own
_reports = pathlib.Path(_folder.name, "faults.jsonl")
_reports.touch()

HIP_LIBRARY = f"{_links}/libamdhip64.so"
os.environ["TRITON_LIBHIP_PATH"] = HIP_LIBRARY
os.environ["QUERN_SIM"] = f"check=all;{os.environ.get('QUERN_SIM', '')};report={_reports}"
hip = ctypes.CDLL(HIP_LIBRARY)


class Faults:
    """The reports of a test's kernels: take() hands them over, and what nobody takes fails the test."""

    def __init__(self):
        self._begin = _reports.stat().st_size

    def take(self):
        hip.hipDeviceSynchronize()
        with open(_reports) as file:
            file.seek(self._begin)
            lines = file.readlines()
            self._begin = file.tell()
        if lines:
            hip.hipDeviceReset()  # after a fault the device gives nothing but errors
        return [json.loads(line) for line in lines]


def describe(fault):
    text = f"kernel {fault['kernel']}: {fault['message']}"
    for which in "instruction", "other":
        if which in fault:
            source = fault[which].get("source")
            place = f"{source['file']}:{source['line']}: " if source else ""
            text += f"\n  {place}{fault[which].get('text', '')}"
    return text


@pytest.fixture(autouse=True)
def kernel_faults():
    faults = Faults()
    yield faults
    left = faults.take()
    if left:
        pytest.fail("\n".join(map(describe, left)), pytrace=False)
