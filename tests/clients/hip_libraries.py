#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the tests of AMD's libraries of headers, unchanged, and runs them on the simulated GPU.

tests/clients/hip_libraries.py --rocm TREE --headers DIR... CHECKOUT...   the tests of checkouts, against each other's headers
tests/clients/hip_libraries.py ... --only block_scan --only warp          those whose name has one of these parts
tests/clients/hip_libraries.py ... --every 8                              a sample: each eighth program
tests/clients/hip_libraries.py ... --arch gfx1151                         for another chip; else gfx942
tests/clients/hip_libraries.py ... --check all                            under checks; else as `quern sim` has them with --check none
tests/clients/hip_libraries.py ... --seconds 60 --compile-seconds 600     limits of a test case and of a compilation
tests/clients/hip_libraries.py ... --jobs 2 --total 3000                  processes at a time; seconds after which nothing is begun
tests/clients/hip_libraries.py ... --work DIR                             keeps programs and results there, and goes on where it stopped

A CHECKOUT is one of ROCm/rocPRIM, ROCm/hipCUB or ROCm/rocThrust; hipCUB and rocThrust need rocPRIM's checkout beside them. TREE and DIR are
those of hip_programs.py; googletest has to be installed. A source that the library's build cuts into slices makes a program of each slice.
The host's part is compiled without optimisation. Each test case runs in a process of its own; DIR/results has a line for each: program,
case, what it did, seconds, why. A program that does not compile has one line without a case. The exit status is 1 if a case or a
compilation fails that hip_libraries.txt does not list: PROGRAM CASE, with * for any text, tab,
reason; one that begins with "slow" is for slow cases alone.
"""

import argparse
import concurrent.futures
import fnmatch
import itertools
import os
import pathlib
import re
import shutil
import sys
import tempfile
import threading
import time

from hip_programs import Runner

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ("pass", "fail", "slow", "skip", "unbuilt")
# rocPRIM takes for granted that headers of the C++ library bring these two, which not each library's do.
OPTIONS = ["-Xarch_host", "-O0", "-include", "chrono", "-include", "cstring"]
HUGE = re.compile(r"\.Large(Indices|Input|SegmentCount)")  # cases of 2^30 elements and more: they are not begun


class Test:
    """A program of tests: its name, its source or the text of one, and where that finds headers."""

    def __init__(self, name, source, includes, text=None, beside=()):
        self.name, self.source, self.includes, self.text, self.beside = name, source, includes, text, list(beside)
        self.libraries = ["-lgtest", "-lgtest_main"] + (["-lsqlite3"] if (source.parent / "bitwise_repro").is_dir() else [])
        self.file = re.sub(r"\W", "_", name)


# ---- what there is

def _slices(template):
    """Returns the slices of a source: the end of a program's name and the source's text, as the library's CMakeLists.txt makes them."""
    text = template.read_text()
    values = {kind: sorted(set(re.findall(rf"\w+_{kind} *== *(\d+)", text)), key=int) for kind in ("TEST_SLICE", "SUITE_SLICE", "TYPE_SLICE")}
    chosen = [(f"_{n}", {"TEST_SLICE": n}) for n in values["TEST_SLICE"]]
    chosen += [(f"_typed_{s}_{t}", {"SUITE_SLICE": s, "TYPE_SLICE": t}) for s, t in itertools.product(values["SUITE_SLICE"], values["TYPE_SLICE"])]

    def define(match, given):
        kind = re.search(r"(SUITE|TYPE)_SLICE$|TEST_SLICE$", match[1])[0]
        return f"#define {match[1]} {given.get(kind, -1)}"

    return [(end, re.sub(r"#cmakedefine (\w+) .*", lambda m, g=given: define(m, g), text)) for end, given in chosen]


def find_tests(root):
    """Returns the tests of a checkout."""
    folders = [root / "test/rocprim", root / "test/hipcub", root / "test"]
    folder = next(f for f in folders if list(f.glob("test_*.cpp")))
    includes, tests = [folder, root / "test"], []
    for source in sorted([*folder.glob("test_*.cpp"), *folder.glob("test_*.cpp.in")]):
        name = f"{root.name}/{source.name.split('.')[0]}"
        if source.suffix == ".in":
            tests += [Test(name + end, source, includes, text) for end, text in _slices(source)]
        else:
            beside = (folder / "detail").glob("get_*_version.cpp") if source.stem.endswith("_basic") else []
            tests.append(Test(name, source, includes, beside=beside))
    return tests


def library_includes(checkouts):
    """Returns the folders of the libraries' own headers."""
    parts = ("hipcub/include", "rocprim/include", "thrust/..")
    return [root / part for root in checkouts for part in parts if (root / part).is_dir()]


def _write_thrust_headers(checkouts, versions):
    """Makes the headers that rocThrust's build makes beside the version, with the seeds that it chooses. Returns their folder."""
    tests, wanted = versions / "test", versions / "thrust/include"
    for folder in (tests, wanted):
        folder.mkdir(parents=True, exist_ok=True)
    for template in (t for root in checkouts for t in root.glob("test/test_seed.in.hpp")):
        text = template.read_text().replace("${RNG_SEED_COUNT}", "0").replace("${PRNG_SEEDS_INITIALIZER}", "1")
        (tests / "test_seed.hpp").write_text(text)
        shutil.copy(versions / "rocthrust_version.hpp", wanted)
    return tests


# ---- making and running

def _cases(text):
    """Returns the test cases that --gtest_list_tests prints."""
    suite, cases = "", []
    for line in text.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith("  ") and suite:
            cases.append(suite + name)
        elif name.endswith(".") and " " not in name:
            suite = name
    return cases


def _reason(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("quernsim:")]
    theirs = [line for line in lines if re.search(r"error|failure|mismatch", line, re.I)]
    return (ours or theirs or lines or ["no text"])[0][:200].replace("\t", " ")


class Suite(Runner):
    """Makes programs of tests and runs their cases; keeps a record of both in a folder."""

    def __init__(self, options):
        self.work = options.work
        for name in ("programs", "versions", "texts"):
            (self.work / name).mkdir(parents=True, exist_ok=True)
        super().__init__(options, self.work)
        self.end = time.monotonic() + options.total
        self.compile += [*OPTIONS, *(f"-I{d.resolve()}" for d in library_includes(options.checkouts)),
                         f"-I{_write_thrust_headers(options.checkouts, self.work / 'versions')}"]
        self.lock, self.record = threading.Lock(), self.work / "results"
        self.cases = concurrent.futures.ThreadPoolExecutor(options.jobs)
        self.done = {tuple(line.split("\t")[:2]) for line in self.record.read_text().splitlines()} if self.record.exists() else set()

    def note(self, *columns):
        """Adds a line to the record."""
        with self.lock, self.record.open("a") as out:
            print(*columns, sep="\t", file=out, flush=True)

    def _within(self, command, folder, seconds):
        """Runs a command within a limit and what is left of the time. Returns the status, the text, and whether the time is over."""
        status, text = self._run(command, folder, max(0.1, min(seconds, self.end - time.monotonic())))
        return status, text, status is None and time.monotonic() >= self.end

    def build(self, test):
        """Compiles and links a program unless it is there. Returns whether it is."""
        program, made = self.work / "programs" / test.file, []
        if program.exists() or (test.name, "") in self.done:
            return program.exists()
        start = time.monotonic()
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            source = test.source
            if test.text:
                source = pathlib.Path(folder, test.file + ".cpp")
                source.write_text(test.text)
            for number, one in enumerate([source, *test.beside]):
                made.append(f"{folder}/{number}.o")
                command = [*self.compile, *(f"-I{i}" for i in test.includes), "-c", one, "-o", made[-1]]
                status, text, is_over = self._within(command, folder, self.options.compile_seconds)
                if is_over:
                    return False
                if status != 0:
                    self.note(test.name, "", "unbuilt", f"{time.monotonic() - start:.1f}", _reason(text) if status else "not compiled in time")
                    return False
            status, text = self._run([self.compile[0], *made, "-o", f"{folder}/program", *self.link, *test.libraries], folder, 300)
            if status != 0:
                self.note(test.name, "", "unbuilt", f"{time.monotonic() - start:.1f}", "does not link: " + _reason(text))
                return False
            os.replace(f"{folder}/program", program)
        return True

    def _sim(self, test, *arguments):
        """Runs a program on the simulated GPU, as _within does."""
        command = [self.quern, "sim", "--arch", self.options.arch, "--check", self.options.check, "--", self.work / "programs" / test.file]
        return self._within([*command, *arguments], self.work, self.options.seconds)

    def run_case(self, test, case):
        """Runs a test case and notes what it did; not, if there is no time left."""
        start = time.monotonic()
        if HUGE.search(case):
            return self.note(test.name, case, "slow", 0, "not begun: 2^30 elements and more")
        status, text, is_over = self._sim(test, f"--gtest_filter={case}", "--gtest_color=no")
        if is_over:
            return None
        kind = "slow" if status is None else "fail" if status else "skip" if "[  SKIPPED ]" in text else "pass"
        if kind == "fail":
            (self.work / "texts" / (test.file + re.sub(r"\W", "_", f".{case}"))).write_text(text[-100000:])
        return self.note(test.name, case, kind, f"{time.monotonic() - start:.1f}", "" if kind == "pass" else _reason(text))

    def run(self, test):
        """Makes a program and queues its cases, but those that are done. Returns the queued ones."""
        if time.monotonic() >= self.end or not self.build(test):
            return []
        _, text, _ = self._sim(test, "--gtest_list_tests")
        return [self.cases.submit(self.run_case, test, case) for case in _cases(text) if (test.name, case) not in self.done]


# ---- the whole

def _arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--rocm", required=True, type=pathlib.Path)
    parser.add_argument("--headers", type=pathlib.Path, action="append", default=[], help="searched after all others")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--every", type=int, default=1, help="of the programs, each so many-th")
    parser.add_argument("--arch", default="gfx942")
    parser.add_argument("--check", default="none")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--compile-seconds", type=float, default=600)
    parser.add_argument("--total", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--work", required=True, type=lambda p: pathlib.Path(p).resolve())
    parser.set_defaults(first=[])
    return parser.parse_args()


def _read_known(path):
    """Returns what is known not to pass: patterns of a program's name and a case's, each with its reason."""
    return [line.split("\t") for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]


def _is_known(known, program, case, kind):
    """A reason that begins with "slow" is one for slow cases alone, and they have no other."""
    name = f"{program} {case}".strip()
    return any(fnmatch.fnmatchcase(name, pattern) and (kind == "slow") == reason.startswith("slow") for pattern, reason in known)


def _summary(record, names):
    """Prints what the cases of each checkout did. Returns the lines of what failed."""
    rows = [line.split("\t") for line in record.read_text().splitlines()] if record.exists() else []
    for root in names:
        mine = [row for row in rows if row[0].startswith(root + "/")]
        count = {kind: sum(row[2] == kind for row in mine) for kind in KINDS}
        ran = count["pass"] + count["fail"] + count["slow"]
        programs = len({row[0] for row in mine if row[1]})
        print(f"{root}: {count['pass']} of {ran} cases of {programs} programs pass ({100 * count['pass'] / max(ran, 1):.1f} %); "
              + ", ".join(f"{n} {kind}" for kind, n in count.items()))
    return [row for row in rows if row[2] in ("fail", "slow", "unbuilt")]


def main():
    """Prints what fails, and the table. Returns the exit status."""
    options = _arguments()
    tests = [test for root in options.checkouts for test in find_tests(root)]
    tests = [test for test in tests if not options.only or any(part in test.name for part in options.only)][::options.every]
    suite = Suite(options)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for queued in pool.map(suite.run, tests):
            concurrent.futures.wait(queued)
    suite.cases.shutdown()
    known = _read_known(HERE / "hip_libraries.txt")
    new = 0
    for program, case, kind, _, reason in _summary(suite.record, [root.name for root in options.checkouts]):
        is_known = _is_known(known, program, case, kind)
        new += not is_known
        print(f"{kind:7} {program} {case}  {reason}{'' if is_known else '  (not in hip_libraries.txt)'}")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
