#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles HIP programs of others, unchanged, and runs them on the simulated GPU.

tests/clients/hip_programs.py --rocm TREE --headers DIR... CHECKOUT...    the examples, samples and unit tests of checkouts
tests/clients/hip_programs.py ... --only graph --only samples             those whose path has one of these parts
tests/clients/hip_programs.py ... --every 8                               a sample: each eighth program
tests/clients/hip_programs.py ... --arch gfx1151                          for another chip; else gfx942
tests/clients/hip_programs.py ... --check all                             under checks, whose reports are failures; else with none
tests/clients/hip_programs.py ... --seconds 60 --jobs 2 --json FILE       limit of a run, programs at a time, results; goes on where FILE ends
tests/clients/hip_programs.py ... --total 400 --texts FILE                begins nothing after so many seconds; the whole text of what failed

A CHECKOUT is one of ROCm/rocm-examples, ROCm/HIP-Examples, ROCm/hip-tests, ROCm/hipCUB or ROCm/rocThrust, known by what it has; of the
last two the examples are run, as hip_libraries.py runs the tests. TREE is what
tools/rocm_tree.sh makes of Triton's wheel. The wheel lacks some of HIP's headers (cooperative groups, fp16, hiprtc); DIR is a folder that
has them: include of ROCm/HIP, hipamd/include of ROCm/clr, rocprim/include, hipcub/include.

hip-tests has a list of its test cases that are turned off for AMD, for all chips or some; each is read as hip-tests' build reads it, and the
table says how many of a program's cases it turns off.

For each program the table says pass, fail, slow (over the limit) or skip (does not compile with these headers and this clang, or SKIPPED says
why), with a reason: the call that is missing, or the last line. hip_programs.txt lists those that are known to fail, with a reason each. The
exit status is 1 if another one fails, or if one of the list passes that is not said to be slow.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = (".hip", ".cpp", ".cu", ".cc")
DATA = (".bmp", ".txt", ".h", ".json")

# Part of a program's path -> why it is left out.
SKIPPED = {"opengl_interop": "graphics", "vulkan_interop": "graphics", "gl_interop": "graphics", "texture": "textures", "surface": "textures",
           "hello_world_cuda": "for CUDA", "hipify": "for CUDA", "Tutorials/reduction": "needs tbb, benchmark and gtest",
           "assembly_to_executable": "a build of several steps", "llvm_ir_to_executable": "a build of several steps",
           "static_device_library": "a build of several steps", "static_host_library": "a build of several steps",
           "15_static_library": "a build of several steps", "TestFortran": "Fortran", "channelDescriptor": "textures",
           "openmp-helloworld": "OpenMP", "gpu-burn": "runs until it is stopped", "perftests": "times a card", "unit/gcc": "for gcc",
           "unit/g++": "for gcc", "c_compilation": "for C", "compileAndCaptureOutput": "no program", "benchmark-openmp": "for the CPU", "benchmark-opencl": "for OpenCL",
           "hipDispatchEnqueueRateMT": "wants arguments", "MipmappedArray": "textures"}

# What a program loads beside itself: source -> file.
MODULES = {"module_api/main": ("module.hip", "module.co"), "module_api/runKernel": ("vcpy_kernel.cpp", "vcpy_kernel.code"),
           "module_api/defaultDriver": ("vcpy_kernel.cpp", "vcpy_kernel.code"),
           "module_api/launchKernelHcc": ("vcpy_kernel.cpp", "vcpy_kernel.code"),
           "module_api_global/runKernel": ("vcpy_kernel.cpp", "vcpy_kernel.code"),
           "hipDispatchLatency": ("test_kernel.cpp", "test_kernel.code")}
NVCC_OPTIONS = r"-gencode|-arch=sm|--expt|--default-stream"
KERNELS_ALONE = {"module", "vcpy_kernel", "test_kernel", "tex2dKernel"}


class Program:
    """A program: its name, what it is made of, and how; what it loads (source, file, options) and starts (source, file)."""

    def __init__(self, name, sources, includes=(), objects=(), modules=(), executables=()):
        self.name, self.sources, self.includes, self.objects = name, list(sources), list(includes), list(objects)
        self.modules, self.executables, self.options = list(modules), list(executables), []
        self.has_cases = any("hipTestMain" in str(o) for o in self.objects)


# ---- what there is

def _modules_of(name, folder):
    return [(folder / source, target, []) for part, (source, target) in MODULES.items() if part in name][:1]


def _folder_programs(root, folder, includes):
    """A program of all sources of a folder, or one for each where several have a main."""
    sources = [s for s in sorted(folder.iterdir()) if s.suffix in SOURCES and s.stem not in KERNELS_ALONE and not s.name.endswith(".cu")]
    mains = [s for s in sources if re.search(r"^\s*(int|void)\s+main\s*\(", s.read_text(errors="replace"), re.M)]
    others = [s for s in sources if s not in mains]
    for main in mains:
        name = f"{root.name}/{main.relative_to(root).with_suffix('')}"
        yield Program(name, [main, *others], [folder, folder.parent, *includes], modules=_modules_of(name, folder))


class Recipe:
    """What a folder of unit tests builds beside them, as its CMakeLists.txt says: sources that all tests share, modules, executables."""

    def __init__(self, folder):
        path = folder / "CMakeLists.txt"
        text = path.read_text() if path.exists() else ""
        listed = " ".join(re.findall(r"set\(\s*\w*SRC\w*\s([^)]*)\)", text))
        named = [folder / name for name in dict.fromkeys(re.findall(r"[\w/]+\.(?:cc|cpp)\b", listed))]
        self.shared = [s for s in named if s.exists() and "TEST_CASE" not in s.read_text(errors="replace")]
        self.headers = "".join(h.read_text(errors="replace") for h in sorted(folder.glob("*.h*")) if h.suffix in (".h", ".hh"))
        given = re.findall(r'set_source_files_properties\(([\w.]+) PROPERTIES COMPILE_(?:OPTIONS|FLAGS) "([^"]*)"', text)
        self.options = {source: shlex.split(options) for source, options in given if not re.search(NVCC_OPTIONS, options)}
        self.executables = [(folder / source, name) for name, source in re.findall(r"add_executable\((\w+) (?:EXCLUDE_FROM_ALL )?([\w.]+)", text)]
        self.modules = [m for block in text.split("add_custom_") if "--genco" in block for m in self._module(folder, block)]

    @staticmethod
    def _module(folder, block):
        source = re.search(r"SOURCE_DIR\}/([\w.]+\.(?:cc|cpp))", block)
        target = re.search(r"-o\s+\S*?([\w.]+\.\w+)\s", block)
        options = re.findall(r"-mllvm|-amdgpu[\w=-]+|-mcode-object-version=\d|-fgpu-rdc|--offload-compress", block)
        return [(folder / source[1], target[1], options)] if source and target else []

    def of(self, program_text):
        """Returns the executables that a test names, itself or in a header of the folder, and the modules that it or they name."""
        text = program_text + self.headers
        executables = [e for e in self.executables if f'"{e[1]}"' in text]
        text += "".join(source.read_text(errors="replace") for source, _ in executables if source.exists())
        return [m for m in self.modules if m[1] in text], executables


def _unit_programs(root):
    catch = root / "catch"
    includes = [catch / "include", catch / "external/Catch2", catch / "external/picojson", catch / "kernels", catch / "external"]
    main = [catch / "hipTestMain" / f"{name}.cc" for name in ("main", "hip_test_context", "hip_test_features")]
    main += sorted((catch / "kernels").glob("*.cpp"))
    recipes = {}
    for source in sorted((catch / "unit").glob("**/*.cc")):
        folder, text = source.parent, source.read_text(errors="replace")
        recipe = recipes[folder] = recipes.get(folder) or Recipe(folder)
        if "TEST_CASE" in text:
            modules, executables = recipe.of(text)
            name = f"{root.name}/{source.relative_to(root).with_suffix('')}"
            program = Program(name, [source], [folder, *includes], main + recipe.shared, modules, executables)
            program.options = recipe.options.get(source.name, [])
            yield program


def find_programs(root):
    """Returns the programs of a checkout."""
    if (root / "catch/hipTestMain").is_dir():
        folders, includes = sorted(p for p in (root / "samples").glob("*/*") if p.is_dir()), [root / "samples/common"]
        units = list(_unit_programs(root))
    elif (root / "HIP-Basic").is_dir():
        folders = sorted(p for part in ("HIP-Basic", "Applications", "Tutorials/*") for p in root.glob(part + "/*") if p.is_dir())
        includes, units = [root / "Common", root / "External"], []
    elif (root / "HIP-Examples-Applications").is_dir():
        folders = sorted({p.parent for p in root.glob("**/*.cpp")})
        includes, units = [root / "HIP-Examples-Applications/include"], []
    elif (root / "thrust").is_dir() or (root / "hipcub").is_dir():
        sources = sorted(p for p in (root / "examples").glob("**/*") if p.suffix in (".cu", ".cpp") and "cuda/" not in str(p))
        return [Program(f"{root.name}/{s.relative_to(root).with_suffix('')}", [s], [root, root / "examples", root / "examples/include"])
                for s in sources if "cpp_integration" not in str(s)]
    else:
        sys.exit(f"hip_programs: {root} is none of the checkouts that this script knows")
    return [p for folder in folders for p in _folder_programs(root, folder, includes)] + units


# ---- making and running one

def _make_version_headers(folders, out):
    """Makes the headers that libraries' builds make of their versions."""
    version = re.compile(r'(?:VERSION_STRING|rocm_setup_version\(VERSION) "(\d+)\.(\d+)\.(\d+)"')
    for template in (t for folder in folders for t in folder.resolve().glob("**/*_version.hpp.in")):
        builds = [p / "CMakeLists.txt" for p in template.parents if (p / "CMakeLists.txt").exists()]
        numbers = next(filter(None, (version.search(b.read_text(errors="replace")) for b in builds)), None)
        text = template.read_text()
        for part, number in zip(("MAJOR", "MINOR", "PATCH"), numbers.groups() if numbers else ()):
            text = re.sub(rf"@\w+_{part}@", number, text)
        for target in (out / template.stem, out / template.parent.name / template.stem):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)


def make_whole_tree(options, folder):
    """Makes a tree of links to the other headers and TREE, for hiprtc, which looks in one tree alone and has all its headers built in,
    so that they have to be of one version. Returns it."""
    folder.mkdir(exist_ok=True)
    for part in (p for p in ("amdgcn", "share") if not (folder / p).exists()):
        (folder / part).symlink_to((options.rocm / part).resolve())
    for include in [*options.headers, options.rocm / "include"]:
        for header in (p for p in include.resolve().rglob("*") if p.is_file()):
            target = folder / "include" / header.relative_to(include.resolve())
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                target.symlink_to(header)
    return folder


class Runner:
    """Compiles and runs programs with one set of options."""

    def __init__(self, options, scratch):
        self.options, self.scratch, self.shared, self.writing = options, scratch, {}, threading.Lock()
        self.environment = dict(os.environ, ROCM_PATH=str(make_whole_tree(options, scratch / "rocm")))  # for hiprtc
        clang = next(c for c in ("clang++-22", "clang++-23", "clang++") if shutil.which(c))
        build = pathlib.Path(os.environ["QUERN_BUILD_DIR"]).resolve()
        self.quern, self.links = build / "quern", build / "quern-sim-links"
        self.compile = [clang, "-x", "hip", f"--rocm-path={options.rocm.resolve()}", f"--offload-arch={options.arch}", "-O1", "-w", "-std=c++17",
                        "-Wno-missing-template-arg-list-after-template-kw",  # which older clangs accept
                        "-D__HIP_PLATFORM_AMD__", f"-D__AMDGCN_WAVEFRONT_SIZE={32 if options.arch[:5] in ('gfx10', 'gfx11', 'gfx12') else 64}",
                        *(f"-I{d.resolve()}" for d in options.first), *(a for d in options.headers for a in ("-idirafter", str(d.resolve())))]
        _make_version_headers([*options.checkouts, *options.first, *options.headers], scratch / "versions")
        self.compile += [f"-I{scratch / 'versions'}"]
        self.link = ["-fuse-ld=lld", "--hip-link", "-no-hip-rt", "-L", str(self.links), "-lamdhip64", "-lpthread", "-ldl", "-lm"]
        self.link += ["-lhiprtc"] if (self.links / "libhiprtc.so").exists() else []
        for config in (root / "catch/hipTestMain/config/config_amd_linux" for root in options.checkouts):
            if config.exists():
                off = self.environment["HIP_CATCH_EXCLUDE_FILE"] = str(scratch / "off.json")
                subprocess.run([clang, "-x", "c", "-E", "-P", f"-D{options.arch}", '-DGITHASH="unknown"', config, "-o", off], check=True)

    def _run(self, command, cwd, seconds):
        """Returns the exit status, None if it took too long, and the text."""
        with tempfile.TemporaryFile() as out:
            child = subprocess.Popen(command, cwd=cwd, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                status = child.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                child.wait()
                status = None
            out.seek(0)
            return status, out.read().decode(errors="replace")

    def share(self, source, includes):
        """Compiles what many programs share. Its object is None if it does not compile."""
        target = self.scratch / re.sub(r"\W", "_", f"{source}.o")
        status, _ = self._run([*self.compile, *(f"-I{i}" for i in includes), "-c", source, "-o", target], self.scratch, 300)
        self.shared[source] = target if status == 0 else None

    def make(self, program, folder):
        """Returns why the program cannot be made: a kind and a reason; or nothing."""
        includes = [f"-I{i}" for i in program.includes]
        for source, target, extra in program.modules:
            command = [*self.compile, "--cuda-device-only", "--no-gpu-bundle-output", *extra, *includes, source, "-o", folder / target]
            status, text = self._run(command, folder, 300)
            if status != 0:
                return "skip", _first_error(text)
        for source, target in program.executables:
            status, text = self._run([*self.compile, *includes, source, "-o", folder / target, *self.link], folder, 300)
            if status != 0:
                return "skip", _first_error(text)
        for data in program.sources[0].parent.iterdir():  # what it reads
            if data.suffix in DATA:
                shutil.copy(data, folder)
        if (program.sources[0].parent / "headers").is_dir():
            shutil.copytree(program.sources[0].parent / "headers", folder / "headers")
        made = []
        for source in program.sources:
            made.append(folder / f"{source.stem}.o")
            status, text = self._run([*self.compile, *program.options, *includes, "-c", source, "-o", made[-1]], folder, 600)
            if status != 0:
                return "skip", "does not compile: " + _first_error(text)
        command = [self.compile[0], *made, *(o for o in map(self.shared.get, program.objects) if o), "-o", folder / "program", *self.link]
        status, text = self._run(command, folder, 300)
        missing = sorted(set(re.findall(r"undefined symbol: (hip\w+)$", text, re.M)))
        if status != 0 and missing:
            return "fail", "does not link: " + " ".join(missing)
        return ("skip", "does not link: " + _first_error(text)) if status != 0 else None

    def _run_program(self, folder, arguments):
        faults = ["--error-exitcode", "99"] if self.options.check != "none" else []
        command = [self.quern, "sim", "--arch", self.options.arch, "--devices", str(self.options.devices), "--check", self.options.check, *faults,
                   "--", folder / "program", *arguments]
        status, text = self._run(command, folder, self.options.seconds)
        if status != 0 and self.options.texts:
            with self.writing, self.options.texts.open("a") as out:
                out.write(f"==== {folder.name} {' '.join(arguments)}: {'slow' if status is None else f'exit {status}'}\n{text}\n")
        if status is None:
            return "slow", f"over {self.options.seconds} s" + _missing(text)
        if text.split() == ["HIP_SKIP_THIS_TEST"]:  # all that hip-tests' main says then
            return "off", ""
        return ("pass", "") if status == 0 else ("fail", _last_error(status, text))

    def _run_cases(self, folder):
        """Runs each test case in a process of its own, as ctest does where catch_discover_tests tells it of them; none after three slow ones."""
        _, text = self._run([self.quern, "sim", "--arch", self.options.arch, "--", folder / "program", "--list-test-names-only"], folder, self.options.seconds)
        cases = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("quernsim:")]
        results = []
        for case in cases:
            slow = sum(kind == "slow" for _, kind, _ in results)
            results.append((case, *(self._run_program(folder, [case.replace(",", "\\,")]) if slow < 3 else ("slow", "not run"))))
        bad = [(case, kind, reason) for case, kind, reason in results if kind not in ("pass", "off")]
        off = sum(kind == "off" for _, kind, _ in results)
        if off == len(cases):
            return "skip", "hip-tests turns its cases off for AMD" if cases else "has no test cases for AMD's devices"
        if not bad:
            return "pass", f"{off} of {len(cases)} cases are off" if off else ""
        worst = "fail" if any(kind == "fail" for _, kind, _ in bad) else "slow"
        return worst, f"{len(cases) - len(bad) - off} of {len(cases) - off} cases pass; " + "; ".join(f"{case}: {reason}" for case, _, reason in bad)[:400]

    def result(self, program):
        """Returns a kind (pass, fail, slow, skip) and the reason."""
        reason = next((why for part, why in SKIPPED.items() if part in program.name), None)
        if reason:
            return "skip", reason
        folder = self.scratch / re.sub(r"\W", "_", program.name)
        folder.mkdir()
        try:
            wrong = self.make(program, folder)
            if wrong:
                return wrong
            return self._run_cases(folder) if program.has_cases else self._run_program(folder, [])
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _first_error(text):
    lines = [line for line in text.splitlines() if "error:" in line]
    return (lines or text.splitlines() or ["?"])[0].strip()[-160:]


def _missing(text):
    calls = sorted(set(re.findall(r"quernsim: (\w+): not supported", text)) | set(re.findall(r"simulated GPU has no (\w+)", text)))
    return f"; no {' '.join(calls)}" if calls else ""


def _last_error(status, text):
    """The line that says best why a program failed."""
    if _missing(text):
        return _missing(text)[2:]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("quernsim:")]
    theirs = [line for line in lines if re.search(r"error|fail|mismatch", line, re.I) and "assertions:" not in line]
    return f"exit {status}: " + (ours or theirs or lines or ["no text"])[0][:160]


# ---- the whole

def read_known(path, arch):
    """Returns the known failures of a chip: name -> reason."""
    lines = [line.strip().split("\t") for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return {name: reason for name, reason, *chips in lines if not chips or arch in chips}


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=pathlib.Path)
    parser.add_argument("--rocm", required=True, type=pathlib.Path)
    parser.add_argument("--headers", type=pathlib.Path, action="append", default=[], help="searched after all others")
    parser.add_argument("--first", type=pathlib.Path, action="append", default=[], help="searched before all others")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--every", type=int, default=1, help="of the programs, each so many-th")
    parser.add_argument("--arch", default="gfx942")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--check", default="none")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--total", type=float, default=float("inf"), help="seconds after which no program is begun")
    parser.add_argument("--texts", type=pathlib.Path, help="gets the text of each case that fails")
    return parser.parse_args()


def run_all(options, programs, results):
    """Runs programs, prints what each did and adds it to the results, by name."""
    end = time.monotonic() + options.total
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runner = Runner(options, pathlib.Path(scratch))
        shared = {source: p.includes for p in programs for source in p.objects}
        list(pool.map(runner.share, shared, shared.values()))
        runs = {pool.submit(lambda p: runner.result(p) if time.monotonic() < end else None, p): p for p in programs}
        for run in concurrent.futures.as_completed(runs):
            if run.result() is None:
                continue
            name, (kind, reason) = runs[run].name, run.result()
            results[name] = kind, reason
            print(f"{kind:5} {name}  {reason}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1))


def main():
    """Prints the table. Returns the exit status."""
    options = _arguments()
    programs = [p for root in options.checkouts for p in find_programs(root.resolve())]
    programs = [p for p in programs if not options.only or any(part in p.name for part in options.only)][::options.every]
    known, results = read_known(HERE / "hip_programs.txt", options.arch), {}
    if options.json and options.json.exists():
        results = {name: tuple(result) for name, result in json.loads(options.json.read_text()).items()}
    run_all(options, [p for p in programs if p.name not in results], results)
    count = {kind: sum(k == kind for k, _ in results.values()) for kind in ("pass", "fail", "slow", "skip")}
    ran = count["pass"] + count["fail"] + count["slow"]
    print(f"{count['pass']} of {ran} pass ({100 * count['pass'] / max(ran, 1):.1f} %); " + ", ".join(f"{n} {k}" for k, n in count.items()))
    new = [n for n, (k, _) in results.items() if k in ("fail", "slow") and n not in known]
    better = [n for n, (k, _) in results.items() if k == "pass" and n in known and not known[n].startswith("slow")]
    for name in new + better:
        print(f"{name}: {'fails and is not in' if name in new else 'passes and is in'} hip_programs.txt")
    return 1 if new or better else 0


if __name__ == "__main__":
    sys.exit(main())
