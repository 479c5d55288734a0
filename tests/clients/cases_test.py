# SPDX-License-Identifier: Apache-2.0
"""The runners of others' tests: what fails, what is listed, and what is told of a list."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

RUNNER = """
import pathlib, sys
import pytest
from upstream import cases
parser = cases.parser_of("", "x", most=2, seconds=1)
options = parser.parse_args(["", sys.argv[1], *sys.argv[4:]])
plugin = cases.plugin_of(options, sys.argv[2], sys.argv[3])
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--noconftest", sys.argv[1]], plugins=[plugin]))
"""

TESTS = """
import time
import pytest

def test_good():
    pass

def test_wrong():
    assert 1 == 2

def test_slow():
    time.sleep(5)

def test_taken():
    with pytest.raises(ValueError):
        pass

@pytest.mark.parametrize("n", range(50))
def test_many(n):
    pass
"""


def run(tmp_path, known, tests=TESTS, *options, device="cpu"):
    (tmp_path / "test_x.py").write_text(textwrap.dedent(tests))
    (tmp_path / "known.txt").write_text(known)
    done = subprocess.run([sys.executable, "-c", RUNNER, str(tmp_path / "test_x.py"), str(tmp_path / "known.txt"), device, *options],
                          capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(pathlib.Path(__file__).resolve().parent)})
    return done.returncode, done.stdout + done.stderr


def test_unlisted_failure_fails(tmp_path):
    code, text = run(tmp_path, "# nothing\n")
    assert code == 1 and "failed, and not listed: " in text and "test_wrong" in text
    assert "all: 1 failed, 3 passed, 1 slow, 1 taken" in text  # two of the fifty


def test_listed_failure_and_a_line_to_go(tmp_path):
    code, text = run(tmp_path, "fail test_wrong -- one is not two\nfail test_good -- was wrong once\n")
    assert code == 0 and "1 listed" in text
    assert "passes though listed, 1 cases: test_good -- was wrong once" in text


def test_skipped_cases_do_not_run(tmp_path):
    code, text = run(tmp_path, "skip test_wrong -- takes long\nskip test_slow -- too\nskip test_many -- too\n")
    assert code == 0 and "all: 1 passed, 52 skipped, 1 taken" in text


def test_file_that_does_not_load(tmp_path):
    assert run(tmp_path, "", "import nothing_of_that_name")[0] != 0
    code, text = run(tmp_path, "fail test_x.py -- needs what is not there\n", "import nothing_of_that_name")
    assert code == 0 and "1 listed" in text


@pytest.mark.parametrize("device, listed", [("cpu", 1), ("gpu", 0)])
def test_lines_of_a_device(tmp_path, device, listed):
    code, text = run(tmp_path, "fail:cpu test_wrong -- one is not two here\nskip:gpu test_many -- takes long there\n", device=device)
    assert code == 1 - listed and ("1 listed" in text) == bool(listed) and ("50 skipped" in text) != bool(listed)


LATE = """
import pytest, time

@pytest.mark.parametrize("n", range(9))
def test_first(n):
    time.sleep(0.4)

@pytest.mark.parametrize("n", range(9))
def test_second(n):
    time.sleep(0.4)
"""


def test_no_case_begins_too_late(tmp_path):
    code, text = run(tmp_path, "# nothing\n", LATE, "--most", "0", "--within", "2")
    passed, late = (int(re.search(rf"all: .*?(\d+) {what}", text)[1]) for what in ("passed", "late"))
    assert code == 0 and 0 < passed < 9 and passed + late == 18


def test_each_test_has_a_share_of_the_time(tmp_path):
    code, text = run(tmp_path, "# nothing\n", LATE + "    assert n < 0\n", "--most", "0", "--within", "2")
    assert code == 1 and "test_second[" in text  # which comes after the first alone if each test runs whole


REFUSED = """
import pytest
from upstream import cases

def test_refused():
    raise cases.QuernHasNot("no such op")

def test_refused_within_another_error():
    try:
        raise cases.QuernHasNot("no such op")
    except NotImplementedError as error:
        raise RuntimeError("a check of ops failed") from error

def test_of_others():
    raise NotImplementedError("theirs")
"""


def test_refusals_are_told_from_failures(tmp_path):
    code, text = run(tmp_path, "# nothing\n", REFUSED)
    assert code == 1 and "all: 1 failed, 2 refused" in text and "failed, and not listed: " in text and "test_of_others" in text


@pytest.mark.parametrize("line", ["fail test_wrong", "skip -- why", "left test_wrong -- why", "fail test_wrong --", "fail:tpu test_wrong -- why"])
def test_line_of_another_form(tmp_path, line):
    code, text = run(tmp_path, f"fail a -- b\n{line}\n")
    assert code == 1 and f"known.txt:2: found {line!r}; a line is: skip PART -- REASON" in text
