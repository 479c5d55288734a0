# SPDX-License-Identifier: Apache-2.0
"""python -m quern.compat: stand-ins under their libraries' names in an environment of their own."""

import os
import pathlib
import subprocess
import sys
import sysconfig

import pytest

pytest.importorskip("torch")
import quern  # noqa: E402

HERE = pathlib.Path(quern.__file__).parent.parent


class Environment:
    """An environment that finds this Python's packages, and quern, by a .pth file, as if they were its own."""

    def __init__(self, top, has_quern=True):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", top], check=True)
        self.top = top
        (self.site,) = top.glob("lib/python*/site-packages")
        paths = [sysconfig.get_path("purelib"), *([str(HERE)] if has_quern else [])]
        (self.site / "borrowed.pth").write_text("\n".join(paths) + "\n")

    def run(self, *arguments):
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run([self.top / "bin/python", *arguments], capture_output=True, text=True, env=clean, cwd=self.top)

    def python(self, code):
        done = self.run("-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def files(self):
        return sorted(str(path.relative_to(self.site)) for path in self.site.rglob("*") if path.is_file() and path.suffix != ".pyc")


def compat(*arguments):
    return subprocess.run([sys.executable, "-m", "quern.compat", *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture
def environment(tmp_path):
    return Environment(tmp_path / "venv")


@pytest.mark.parametrize("name, part", [("flashinfer", "norm"), ("deep_gemm", "utils.math"), ("aiter", "ops.quant")])
def test_name_is_the_stand_in(name, part, environment):
    before = environment.files()
    done = compat("install", name, "--into", environment.top)
    assert done.returncode == 0 and done.stdout == f"{name}: quern's in {environment.top}\n", done.stderr
    project = {"flashinfer": "flashinfer-python", "aiter": "amd-aiter"}.get(name, name)
    environment.python(f"""
import importlib.metadata, importlib.util, sys
assert importlib.util.find_spec("{name}")
import {name}.{part}
assert {name}.__name__ == "quern.compat.{name}" and sys.modules["{name}.{part}"].__name__ == "quern.compat.{name}.{part}"
assert importlib.metadata.version("{project}") == {name}.__version__ + "+quern"
""")
    assert f"{name:<12} quern\n" in compat("list", "--into", environment.top).stdout
    assert compat("install", name, "--into", environment.top).returncode == 0  # again does no harm
    assert compat("uninstall", name, "--into", environment.top).returncode == 0
    assert environment.files() == before
    assert environment.run("-c", f"import {name}").returncode == 1


def test_several_names(environment):
    before = environment.files()
    assert compat("install", "flashinfer", "deep_gemm", "--into", environment.top).returncode == 0
    assert compat("uninstall", "flashinfer", "--into", environment.top).returncode == 0
    assert environment.python("import deep_gemm; print(deep_gemm.__name__)") == "quern.compat.deep_gemm"
    assert environment.run("-c", "import flashinfer").returncode == 1
    again = compat("uninstall", "flashinfer", "--into", environment.top)
    assert again.returncode == 1 and again.stderr == f"quern.compat: {environment.top} has no stand-in for flashinfer\n"
    assert compat("uninstall", "deep_gemm", "--into", environment.top).returncode == 0
    assert environment.files() == before


def test_the_library_itself_stays(environment):
    (environment.site / "flashinfer").mkdir()
    (environment.site / "flashinfer/__init__.py").write_text("mine = True\n")
    before = environment.files()
    refused = compat("install", "flashinfer", "deep_gemm", "--into", environment.top)
    assert refused.returncode == 1 and "has flashinfer itself" in refused.stderr and "--force" in refused.stderr
    assert environment.files() == before
    assert compat("install", "flashinfer", "--into", environment.top, "--force").returncode == 0
    assert environment.python("import flashinfer; print(flashinfer.__name__)") == "quern.compat.flashinfer"
    assert compat("uninstall", "flashinfer", "--into", environment.top).returncode == 0
    assert environment.files() == before and environment.python("import flashinfer; print(flashinfer.mine)") == "True"


def test_refusals(tmp_path, environment):
    bare = Environment(tmp_path / "bare", has_quern=False)
    done = compat("install", "flashinfer", "--into", bare.top)
    assert done.returncode == 1 and done.stderr == f"quern.compat: {bare.top} has no quern; install it there first\n"
    done = compat("install", "flashinfer", "--into", tmp_path)
    assert done.returncode == 1 and done.stderr == f"quern.compat: {tmp_path} is no Python environment: it has no bin/python\n"
    done = compat("install", "torch", "--into", environment.top)
    assert done.returncode == 2 and "'torch' (choose from" in done.stderr
    assert compat().returncode == 2
    (environment.site / "_quern_compat").write_text("")  # where the folder would be
    done = compat("install", "flashinfer", "--into", environment.top)
    assert done.returncode == 1 and "_quern_compat: File exists" in done.stderr
