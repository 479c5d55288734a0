# SPDX-License-Identifier: Apache-2.0
"""quern sim: what the program that it runs gets."""
import json
import os

from conftest import ok, run

PRINT = "echo $QUERN_SIM; echo $LD_LIBRARY_PATH"


def environment(*args, **changes):
    env = {k: v for k, v in os.environ.items() if k not in ("QUERN_SIM", "LD_LIBRARY_PATH")} | changes
    options, path = ok("sim", *args, "--", "sh", "-c", PRINT, env=env).splitlines()
    return options, path.split(":")


def test_environment():
    options, path = environment()
    assert options == "check=all" and len(path) == 1 and os.path.exists(path[0] + "/libamdhip64.so.7")
    options, path = environment("--arch=gfx942", "--devices=2", "--check", "bounds,barrier",
                                QUERN_SIM="threads=1", LD_LIBRARY_PATH="/a:/b")
    assert options == "check=all;threads=1;arch=gfx942;arch=gfx942;check=bounds,barrier" and path[1:] == ["/a", "/b"]
    printed = json.loads(ok("sim", "--env", "--devices", 3))
    assert printed["environment"]["QUERN_SIM"] == ";".join(["check=all"] + ["arch=gfx942"] * 3)
    assert printed["environment"]["LD_LIBRARY_PATH"].split(":")[0] == printed["folder"]


def test_reports():
    """Where reports go, and what they make of the exit status, is the library's to do."""
    options, _ = environment("--json", "out.json", "--error-exitcode", 9, "--check=none", QUERN_SIM="faults=3")
    assert options == f"check=all;faults=3;check=none;report={os.getcwd()}/out.json;errorcode=9"
    assert environment("--json=/a/b")[0] == "check=all;report=/a/b"


def test_program_is_itself():
    """Its exit status, arguments and input are its own."""
    done = run("sim", "--", "sh", "-c", 'read line; echo "$line $1 $2"; exit 7', "sh", "--arch", "x y", input="in\n")
    assert done.returncode == 7 and done.stdout == "in --arch x y\n" and done.stderr == ""
