# SPDX-License-Identifier: Apache-2.0
"""python -m quern.compat: puts stand-ins under their libraries' names in a Python environment, for programs that nobody can make
call quern.compat.install().

    python -m quern.compat list                                  the names, and whose they are
    python -m quern.compat install flashinfer --into VENV        `import flashinfer` is quern's there from now on
    python -m quern.compat uninstall flashinfer --into VENV      and no longer is

VENV is an environment's folder, by default the running Python's. Where the library itself is installed, install refuses, unless
--force is given; the library stays untouched either way.

In the environment's site-packages there is then a folder _quern_compat, with a package of the name that calls
quern.compat.install() and a record for pip and importlib.metadata, and _quern_compat.pth, which puts the folder first on sys.path.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from quern.compat import LIBRARIES

FOLDER = "_quern_compat"
PROBE = """
import importlib.util, json, sys, sysconfig
def origin(name):
    spec = importlib.util.find_spec(name)
    return spec and (spec.origin or str(list(spec.submodule_search_locations or ["?"])[0]))
print(json.dumps({"site": sysconfig.get_path("purelib"), **{name: origin(name) for name in sys.argv[1:]}}))
"""
PACKAGE = '''"""quern's stand-in for {name}; python -m quern.compat uninstall {name} removes it."""
import sys

import quern.compat

del sys.modules[__name__]  # else it would be the library, imported already
quern.compat.install(__name__)
'''
METADATA = """Metadata-Version: 2.1
Name: {project}
Version: {version}+quern
Summary: quern's stand-in for {name}
Requires-Dist: quern
"""


class Refusal(Exception):
    pass


def look(into, names):
    """Asks the environment's Python where its packages are, quern's and those of the names."""
    python = into / "bin" / "python"
    if not os.access(python, os.X_OK):
        raise Refusal(f"{into} is no Python environment: it has no bin/python")
    with tempfile.TemporaryDirectory() as nowhere:  # python -c looks for modules in the current folder, and -E in no PYTHONPATH
        done = subprocess.run([python, "-E", "-c", PROBE, "quern", *names], capture_output=True, text=True, cwd=nowhere)
    if done.returncode:
        raise Refusal(f"{python} fails: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout)


def is_ours(origin):
    return origin is not None and pathlib.Path(origin).parent.parent.name == FOLDER


def write(folder, name):
    """Writes the package and its record, each whole or not at all."""
    project, version = LIBRARIES[name]
    record = f"{project}-{version}+quern.dist-info"
    files = {f"{name}/__init__.py": PACKAGE.format(name=name), f"{record}/INSTALLER": "quern\n",
             f"{record}/METADATA": METADATA.format(name=name, project=project.replace("_", "-"), version=version)}
    files[f"{record}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{record}/RECORD"])
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as top:
        for path, text in files.items():
            target = pathlib.Path(top) / path
            target.parent.mkdir(exist_ok=True)
            target.write_text(text)
        for part in (record, name):
            shutil.rmtree(folder / part, ignore_errors=True)
            (pathlib.Path(top) / part).rename(folder / part)
    hook = folder.parent / f"{FOLDER}.pth"
    hook.with_suffix(".new").write_text(f"import sys; sys.path.insert(0, {str(folder)!r})\n")
    hook.with_suffix(".new").rename(hook)


def install(into, names, force):
    found = look(into, names)
    if not found["quern"]:
        raise Refusal(f"{into} has no quern; install it there first")
    for name in names:
        if found[name] and not is_ours(found[name]) and not force:
            raise Refusal(f"{into} has {name} itself ({found[name]}); --force makes the name quern's all the same, and leaves it "
                          "where it is")
    for name in names:
        write(pathlib.Path(found["site"]) / FOLDER, name)
        print(f"{name}: quern's in {into}")


def uninstall(into, names, _):
    found = look(into, names)
    folder = pathlib.Path(found["site"]) / FOLDER
    for name in names:
        if not (folder / name).exists():
            raise Refusal(f"{into} has no stand-in for {name}")
    for name in names:
        shutil.rmtree(folder / name)
        for record in folder.glob(f"{LIBRARIES[name][0]}-*.dist-info"):
            shutil.rmtree(record)
        print(f"{name}: no longer quern's in {into}")
    if not any((folder / name).exists() for name in LIBRARIES):
        folder.with_suffix(".pth").unlink(missing_ok=True)
        shutil.rmtree(folder)


def show(into, _names, _force):
    found = look(into, LIBRARIES)
    for name in LIBRARIES:
        print(f"{name:<12} {'quern' if is_ours(found[name]) else found[name] or '-'}")


def main():
    parser = argparse.ArgumentParser(prog="python -m quern.compat", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="list|install|uninstall")
    for command, action in (("list", show), ("install", install), ("uninstall", uninstall)):
        of = commands.add_parser(command)
        of.set_defaults(action=action, names=[], force=False)
        if command != "list":
            of.add_argument("names", nargs="+", metavar="NAME", choices=list(LIBRARIES), help=" or ".join(LIBRARIES))
        of.add_argument("--into", metavar="VENV", type=pathlib.Path, default=pathlib.Path(sys.prefix),
                        help="the environment's folder (default: %(default)s)")
        if command == "install":
            of.add_argument("--force", action="store_true", help="also where the library itself is installed")
    given = parser.parse_args()
    try:
        given.action(given.into.absolute(), list(dict.fromkeys(given.names)), given.force)
    except Refusal as error:
        sys.exit(f"quern.compat: {error}")
    except OSError as error:
        sys.exit(f"quern.compat: {error.filename}: {error.strerror}")


if __name__ == "__main__":
    main()
