# SPDX-License-Identifier: Apache-2.0
"""quern bench where its results find no room, or where it is stopped: nothing is left in their place."""
import os
import resource
import signal
import subprocess
import time

import pytest
from conftest import QUERN, ok, refused

SHORT = ["bench", "attention", "--device", "cpu", "--seq", "16", "--runs", "1"]


def test_standard_output_full():
    for form in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([QUERN, *SHORT, *form], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2 and "standard output" in done.stderr, done.stderr


def test_picture(tmp_path):
    """Tests that no picture is left if it does not fit, and that an old one stays without --force, and if the new one
    does not fit."""
    out = tmp_path / "attention.svg"
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    refused(*SHORT, "--svg", out, says=["attention.svg", "File too large"], leaves=out, preexec_fn=limit)
    ok(*SHORT, "--svg", out)
    first = out.read_bytes()
    assert first.startswith(b"<svg") and first.endswith(b"</svg>\n")
    refused(*SHORT, "--svg", out, says=["attention.svg"])
    refused(*SHORT, "--svg", out, "--force", says=["attention.svg", "File too large"], preexec_fn=limit)
    assert out.read_bytes() == first and os.listdir(tmp_path) == ["attention.svg"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_stopped(tmp_path, number):
    process = subprocess.Popen([QUERN, "bench", "attention", "--device", "cpu", "--runs", "1000", "--svg", tmp_path / "out.svg"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.3)
    process.send_signal(number)
    assert process.communicate()[0] == b""
    assert process.returncode != 0 and os.listdir(tmp_path) == []
