# SPDX-License-Identifier: Apache-2.0
"""TheRock's wheels of the running Python: the library's search for a driver goes there."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import quern
from quern._native import find

SITE = pathlib.Path(quern.__file__).resolve().parents[1]


@pytest.fixture
def wheels(tmp_path):
    """Makes a folder for PYTHONPATH with TheRock's package, in which the simulated GPU stands for the driver."""
    (tmp_path / "_rocm_sdk_core/lib").mkdir(parents=True)
    (tmp_path / "_rocm_sdk_core/__init__.py").touch()
    shutil.copy(find("lib/libquernsim.so.0"), tmp_path / "_rocm_sdk_core/lib/libamdhip64.so.7")
    return tmp_path


def answer(wheels, *command, **variables):
    path = os.pathsep.join([os.environ.get("PYTHONPATH", str(SITE)), str(wheels)])
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": path, **variables})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_driver_of_the_running_python(wheels):
    assert answer(wheels, "-c", "import quern; print('hip:0' in quern.devices())") == "True\n"
    used, = [p for p in json.loads(answer(wheels, "-m", "quern", "devices", "--verbose", "--json"))["drivers"] if p["used"]]
    assert (used["where"], used["path"]) == ("_rocm_sdk_*", f"{wheels}/_rocm_sdk_core/lib/libamdhip64.so.7")


def test_a_folder_that_was_named_stays(wheels, tmp_path):
    assert answer(wheels, "-c", "import quern; print('hip:0' in quern.devices())", QUERN_ROCM_WHEELS=str(tmp_path / "none")) == "False\n"
    assert answer(tmp_path / "none", "-c", "import os, quern; print(os.environ.get('QUERN_ROCM_WHEELS'))") == "None\n"
