# SPDX-License-Identifier: Apache-2.0
"""What peers.py, peer_attention.py and peer_rows.py share: quern through ctypes on PyTorch's memory and streams, and times of
sides that take turns."""

import argparse
import ctypes
import importlib.metadata
import importlib.util
import json
import math
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import time

WARM_UP = 3  # the first runs compile and touch memory for the first time
GRAPH_CALLS = 20


def fail(message):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {message}")


# ---- quern through ctypes: the structs of dlpack.h, functions by name

class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


CPU = 1  # kDLCPU
CODES = {"int32": (0, 32), "uint8": (1, 8), "float32": (2, 32), "bfloat16": (4, 16), "float8_e4m3fn": (10, 8),
         "float8_e4m3fnuz": (11, 8)}


def dl_tensor(tensor):
    """Returns a DLTensor over a torch tensor's memory. The tensor must outlive it."""
    code, bits = CODES[str(tensor.dtype).removeprefix("torch.")]
    shape = (ctypes.c_int64 * tensor.ndim)(*tensor.shape)
    strides = (ctypes.c_int64 * tensor.ndim)(*tensor.stride())
    out = DLTensor(tensor.data_ptr(), CPU, 0, tensor.ndim, code, bits, 1, shape, strides, 0)
    out.keep = (tensor, shape, strides)
    return out


def find_library(given):
    here = pathlib.Path(__file__).resolve().parent
    places = [given, os.environ.get("QUERN_LIBRARY"), here.parent / "build/release/libquern.so",
              here.parent.parent / "lib/libquern.so",
              *sorted(here.parent.parent.glob("lib/*/libquern.so")), "libquern.so"]
    for place in filter(None, places):
        try:
            return ctypes.CDLL(str(place))
        except OSError:
            continue
    fail("no libquern.so; build it (make) or name it with --library")


class Quern:
    """The library with a stream on the device that PyTorch uses: on a GPU, PyTorch's own stream."""

    def __init__(self, torch, library, device="cpu"):
        self.torch, self.lib, self.streams = torch, find_library(library), {}
        self.lib.qn_last_error.restype = ctypes.c_char_p
        self.lib.qn_last_kernel.restype = ctypes.c_char_p
        self.device, self.stream, self.id = ctypes.c_void_p(), ctypes.c_void_p(), (CPU, 0)
        device = torch.device(device)
        if device.type == "cpu":
            self.call("qn_device_open", ctypes.byref(self.device), b"cpu")
            self.call("qn_stream_create", ctypes.byref(self.stream), self.device)
            return
        torch.cuda.set_device(device)  # of current streams, events and graphs
        torch.zeros(1, device=device)  # PyTorch's context, which quern shares
        spec = f"{'hip' if torch.version.hip else 'cuda'}:{device.index or 0}"
        self.call("qn_device_open", ctypes.byref(self.device), spec.encode())
        self.lib.qn_device_id.restype = DLDevice
        found = self.lib.qn_device_id(self.device)
        self.id = (found.type, found.id)

    def call(self, name, *args):
        if getattr(self.lib, name)(*args) != 0:
            fail(f"{name}: {self.lib.qn_last_error().decode()}")

    def on_current_stream(self):
        """Takes PyTorch's current stream, because a graph is recorded on another than its usual one."""
        if self.id[0] == CPU:
            return self.stream
        native = self.torch.cuda.current_stream().cuda_stream
        if native not in self.streams:
            self.streams[native] = ctypes.c_void_p()
            self.call("qn_stream_wrap", ctypes.byref(self.streams[native]), self.device, ctypes.c_void_p(native))
        return self.streams[native]

    def tensor(self, tensor):
        out = dl_tensor(tensor)
        out.device_type, out.device_id = self.id
        return out

    def prepare(self, name, *operands):
        """Returns a function that makes the call. All that Python must prepare is prepared here. An operand that can
        make a struct does."""
        plain = {float: ctypes.c_float, int: ctypes.c_int32, type(None): lambda _: None}
        keep = [o.make(self) if hasattr(o, "make") else plain.get(type(o), self.tensor)(o) for o in operands]
        args = [ctypes.byref(o) if isinstance(o, ctypes.Structure) else o for o in keep]
        run = getattr(self.lib, name)

        def call():
            if run(self.on_current_stream(), *args) != 0:
                fail(f"{name}: {self.lib.qn_last_error().decode()}")
        call.keep = keep
        return call


def device_of(torch, name):
    """Returns PyTorch's device of this name; hip:N is cuda:N of a PyTorch for ROCm."""
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda", "hip") or (number and not number.isdigit()):
        fail(f"--device: found {name}, accepted: cpu, cuda:N, hip:N")
    if kind != "cpu" and not torch.cuda.is_available() or kind == "hip" and not torch.version.hip:
        fail(f"--device: {name}, which PyTorch {torch.__version__} does not see")
    return torch.device(kind if kind == "cpu" else f"cuda:{number or 0}")


# ---- times

class Side:
    """One way to compute something, and the nanoseconds that its runs took."""

    def __init__(self, name, run, pause=0):
        """pause: the least time in seconds that the threads of the side before are given to stop spinning."""
        self.name, self.run, self.pause, self.times, self.spent = name, run, pause, [], 0

    def timed(self, measure):
        """Returns the nanoseconds of a run, or None if it cannot run."""
        return measure(self.run)

    def record(self, torch):
        """Makes later runs replay a recorded graph of the call."""
        self.recorded, self.run = self.run, replay_of(torch, self.run)  # the graph uses the call's tensors

    @property
    def median(self):
        return statistics.median(self.times)

    @property
    def best(self):
        return min(self.times)


def processor_time(run):
    """Returns the nanoseconds of processor time that a call takes of the process's threads."""
    start = time.process_time_ns()
    run()
    return time.process_time_ns() - start


def timer_of(torch, device):
    """Returns a function that gives the nanoseconds of a call."""
    if device.type == "cpu":
        def measure(run):
            start = time.perf_counter_ns()
            run()
            return time.perf_counter_ns() - start
        return measure
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def measure(run):
        start.record()
        run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e6
    return measure


def replay_of(torch, run):
    """Records a graph of GRAPH_CALLS calls, whose time is that of the calls without the host."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # which has made the tensors
    with torch.cuda.stream(stream):
        run()
        run()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(GRAPH_CALLS):
                run()
    return graph.replay


def take_turns(sides, measure, options, calls=1):
    """Fills in each side's times, one run of each after the other, as nanoseconds of one of a run's calls. A side that has
    taken more than options.most seconds runs no more."""
    pause = options.pause
    if pause is None:
        pause = 0.002 if getattr(options, "device", "cpu") == "cpu" else 0
    for _ in range(options.runs + WARM_UP):
        for side in sides:
            if side.spent > options.most * 1e9:
                continue
            time.sleep(max(pause, side.pause))
            ns = side.timed(measure)
            if ns is not None:
                side.spent += ns
                side.times.append(ns / calls)
    for side in sides:
        side.times = side.times[WARM_UP:] or side.times[-1:]


# ---- the scripts' frame

def numbers(text):
    return [int(word) for word in text.split(",")]


def add_options(parser):
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="numbers of CPU threads, comma list")
    parser.add_argument("--runs", type=int, default=20, help="timed runs of each side (default: %(default)s)")
    parser.add_argument("--most", type=float, default=math.inf,
                        help="seconds after which a side runs no more, with the runs that it has had")
    parser.add_argument("--pause", type=float,
                        help="seconds between runs (default: 0.002 on the CPU, 0 on GPUs): so long that the other side's threads "
                             "have stopped spinning, so short that they need no waking from deep sleep, as between the layers "
                             "of a model")
    parser.add_argument("--json", action="append", default=[],
                        help="also write the figures to this file (- for standard output in the table's place)")
    parser.add_argument("--library", help="libquern.so")
    parser.add_argument("--threads-here", type=int, help=argparse.SUPPRESS)


def need(*packages):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            fail(f"{package} is missing in {sys.executable}: pip install {' '.join(packages)}")


def processor():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith(("model name", "model\t"))]
    return " model ".join(reversed(names[:2]))


def versions_of(torch, device):
    """Returns what else the figures depend on: the GPU, its driver, the peers."""
    found = {"torch": torch.__version__}
    for package in ("triton", "flashinfer-python", "nvidia-cutlass-dsl"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    if device.type == "cuda":
        found["device"] = torch.cuda.get_device_name(device)
        try:
            smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], check=False,
                                 stdout=subprocess.PIPE, text=True)
            found["device"] = smi.stdout.strip().splitlines()[0] if smi.returncode == 0 else found["device"]
        except OSError:
            pass  # another maker's GPU
    return found


def of_child(threads, **environment):
    """Returns what this script prints last, as JSON, in a process of its own with so many threads on both sides."""
    child = subprocess.run([sys.executable, *sys.argv, "--threads-here", str(threads)],
                           env=dict(os.environ, QUERN_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads), **environment),
                           stdout=subprocess.PIPE, text=True)
    if child.returncode != 0:
        sys.exit(child.returncode)
    return json.loads(child.stdout.splitlines()[-1])


def collect(threads, **environment):
    """Returns the figures of a process for each number of threads, because both libraries make their threads once."""
    found = [of_child(count, **environment) for count in threads]
    command = shlex.join(["python", f"bench/{pathlib.Path(sys.argv[0]).name}", *sys.argv[1:]])
    return {"processor": processor(), "command": command, "versions": found[0]["versions"],
            "rows": [row for one in found for row in one["rows"]]}


def publish(result, paths, print_table):
    """Writes the figures to each of the paths, and as a table or to standard output."""
    text = json.dumps(result, indent=1) + "\n"
    if "-" in paths:
        sys.stdout.write(text)
    else:
        print_table(result)
    for path in paths:
        if path != "-":
            pathlib.Path(path).write_text(text)
