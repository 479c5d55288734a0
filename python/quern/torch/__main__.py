# SPDX-License-Identifier: Apache-2.0
"""python -m quern.torch: what quern doctor finds; then which attention runs here under scaled_dot_product_attention, which does not,
and why."""

import argparse
import contextlib
import dataclasses
import json
import os
import re
import sys
import tempfile
import warnings

from ._facts import examine, gather, troubles

_DESCRIPTION = """Prints what quern doctor finds. Then runs a few small problems of scaled_dot_product_attention by each of PyTorch's backends and by quern, compares
each result with one in float64, and says of each why it did not run. Then names what is wrong with this installation, and how
to mend it. Exit status: 0, quern computes all, and neither doctor nor this knows a trouble; 1, otherwise; 2, wrong options."""

_LOG = "quern: kernel: "  # how a line of the library on its choice begins

# name, dtype, q shape, k and v shape, options
_PROBLEMS = [
    ("prefill, head_dim 128, causal", "float16", (1, 4, 48, 128), (1, 4, 48, 128), {"is_causal": True}),
    ("prefill, head_dim 64", "bfloat16", (2, 4, 33, 64), (2, 4, 33, 64), {}),
    ("decode, 8 heads on 2", "bfloat16", (2, 8, 1, 128), (2, 2, 70, 128), {"enable_gqa": True}),
    ("head_dim 80, boolean mask", "float16", (1, 4, 20, 80), (1, 4, 20, 80), {"attn_mask": "bool"}),
    ("head_dim 64, added mask", "float32", (1, 4, 20, 64), (1, 4, 31, 64), {"attn_mask": "float"}),
    ("head_dim 96, dropout", "bfloat16", (1, 4, 24, 96), (1, 4, 24, 96), {"dropout_p": 0.25}),
]


def _inputs(torch, problem, device):
    _, dtype, q_shape, kv_shape, options = problem
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(shape, generator=generator).to(getattr(torch, dtype)) for shape in (q_shape, kv_shape, kv_shape))
    options = dict(options)
    kind = options.get("attn_mask")
    if kind:
        seen = torch.rand(q_shape[-2], kv_shape[-2], generator=generator) < 0.8
        mask = seen if kind == "bool" else torch.randn(seen.shape, generator=generator).masked_fill(~seen, -torch.inf)
        options["attn_mask"] = mask.to(device)
    return [t.to(device) for t in (q, k, v)], options


def _exact(torch, tensors, options):
    """Returns the definition's result in float64 on the CPU; None with dropout, as each backend drops other weights."""
    if options.get("dropout_p"):
        return None
    q, k, v = (t.cpu().double() for t in tensors)
    options = {name: x.cpu() if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    if options.get("attn_mask") is not None and options["attn_mask"].dtype != torch.bool:
        options["attn_mask"] = options["attn_mask"].double()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)


def _verdict(torch, got, exact, largest):
    """Returns None if got is right: within one rounding of the result and one of the weights."""
    if not bool(got.isfinite().all()):
        return "wrong: its result is not finite"
    if exact is None:
        return None
    unit = torch.finfo(got.dtype).eps
    error = float((got.cpu().double() - exact).abs().max())
    limit = 4 * unit * max(1.0, largest)
    return None if error <= limit else f"wrong: error {error:.1e}, limit {limit:.1e}"


@contextlib.contextmanager
def _said(lines):
    """Collects in lines what Python warns of and what libraries write to stderr meanwhile."""
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as file, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            lines += [str(w.message).strip().partition("\n")[0] for w in caught]
            lines += file.read().decode(errors="replace").splitlines()


def _without_places(line):
    """Returns a warning of PyTorch's without its place in PyTorch's source."""
    line = re.sub(r"^\[W[^]]*\] (Warning: )?", "", line)
    return re.sub(r"\s*\((Triggered internally at|function) [^)]*\)\.?$", "", line)


def _attempt(torch, tensors, options, context):
    """Returns (result or None, what was said about it)."""
    lines, out, error = [], None, None
    with _said(lines):
        try:
            with context, torch.no_grad():
                out = torch.nn.functional.scaled_dot_product_attention(*tensors, **options)
            if out.is_cuda:
                torch.cuda.synchronize()
        except (RuntimeError, NotImplementedError, ValueError) as raised:
            out, error = None, str(raised).strip().partition("\n")[0]
    return out, lines + ([error] if error else [])


def _probe(torch, name, tensors, options):
    """Returns what can_use_flash_attention and similar functions say: (bool, reasons)."""
    make, can = torch.backends.cuda.SDPAParams, getattr(torch.backends.cuda, f"can_use_{name}_attention")
    parameters = make(*tensors, options.get("attn_mask"), options.get("dropout_p", 0.0), options.get("is_causal", False),
                      options.get("enable_gqa", False))
    lines = []
    with _said(lines):
        can_use = can(parameters, True)
    return can_use, [_without_places(line) for line in lines]


def _run_pytorch(torch, tensors, options, exact):
    results = {}
    largest = float(tensors[2].abs().max())
    for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
        backend = getattr(torch.nn.attention.SDPBackend, name)
        out, why = _attempt(torch, tensors, options, torch.nn.attention.sdpa_kernel(backend))
        wrong = None if out is None else _verdict(torch, out, exact, largest)
        why = [] if out is not None else [_without_places(line) for line in why]
        results[name] = {"ok": out is not None and wrong is None, "why": [wrong] if wrong else why}
    return results


def _run_quern(torch, enable, tensors, options, exact, device):
    registration = enable(device, fallback="error", allow_slow=True)
    out, lines = _attempt(torch, tensors, options, registration)
    wrong = None if out is None else _verdict(torch, out, exact, float(tensors[2].abs().max()))
    choices = [line.partition(_LOG)[2] for line in lines if line.startswith(_LOG)]
    why = [] if out is not None else [line for line in lines if not line.startswith(_LOG)]
    return {"ok": out is not None and wrong is None, "kernel": next(iter(registration.calls), None),
            "why": [wrong] if wrong else why, "not": [part for line in choices for part in re.split("; (?=not )", line)[1:]]}


def _run_problems(device):
    import torch

    from ._ops import register
    from ._sdpa import enable
    register()
    place = "cuda" if torch.cuda.is_available() and (device is None or not device.startswith(("sim:", "cpu"))) else "cpu"
    results = []
    for problem in _PROBLEMS:
        tensors, options = _inputs(torch, problem, place)
        exact = _exact(torch, tensors, options)
        probes = {name: dict(zip(("can", "why"), _probe(torch, name, tensors, options), strict=True))
                  for name in ("flash", "efficient")}
        results.append({"problem": f"{problem[0]}, {problem[1]}", "probes": probes,
                        "pytorch": _run_pytorch(torch, tensors, options, exact),
                        "quern": _run_quern(torch, enable, tensors, options, exact, device)})
    return place, results


# ---- printing

def _print_facts(facts, device):
    print(f"Python {facts.python}, quern {facts.quern}, devices {' '.join(facts.quern_devices)}")
    if facts.torch:
        build = f"ROCm {facts.hip}" if facts.hip else f"CUDA {facts.cuda}" if facts.cuda else "the CPU"
        print(f"PyTorch {facts.torch} for {build}" + (f", {' '.join(facts.built_for)}" if facts.built_for else ""))
        print(f"GPU of PyTorch: {facts.name}, {facts.arch}" if facts.is_available else "GPU of PyTorch: none")
    if facts.cards:
        print(f"cards of the kernel driver: {' '.join(facts.cards)}")
    if facts.preferred:
        print(f"preferred library for attention: {facts.preferred}")
    for name, value in facts.switches.items():
        print(f"{name}={value}")
    if device:
        print(f"quern runs on {device}")


def _print_results(place, results):
    for result in results:
        print(f"\n{result['problem']}  (PyTorch on {place})")
        for name, probe in result["probes"].items():
            print(f"  can_use_{name + '_attention':<21} {'yes' if probe['can'] else 'no'}")
            for why in probe["why"]:
                print(f"      {why}")
        for name, run in result["pytorch"].items():
            print(f"  {name:<29} {'OK' if run['ok'] else 'no'}")
            for why in run["why"]:
                print(f"      {why}")
        run = result["quern"]
        print(f"  {'quern':<29} {'OK, ' + str(run['kernel']) if run['ok'] else 'no'}")
        for why in run["why"] + run["not"]:
            print(f"      {why}")


def _print_troubles(found):
    print(f"\n{len(found) or 'no'} known trouble{'' if len(found) == 1 else 's'}")
    for trouble in found:
        print(f"- {trouble.what}\n  fix: {trouble.fix}")


def _refusals(results):
    return [why for result in results for run in (*result["probes"].values(), *result["pytorch"].values())
            for why in run["why"]]


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m quern.torch", description=_DESCRIPTION)
    parser.add_argument("--device", help="where quern runs: cpu, cuda, hip, sim:gfx1151 and the like (default: PyTorch's GPU, "
                        "else the CPU)")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    options = parser.parse_args(arguments)
    doctor = examine(options.device, options.json)
    if doctor.returncode not in (0, 1):
        parser.error(doctor.stderr.strip())
    os.environ["QUERN_LOG"] = "kernel"  # the library reads it at its first use; the lines are collected above
    facts = gather()
    place, results = None, []
    if facts.torch:
        try:
            place, results = _run_problems(options.device)
        except (ValueError, LookupError) as error:
            parser.error(str(error))
    found = troubles(facts, _refusals(results))
    if options.json:
        print(json.dumps({"doctor": json.loads(doctor.stdout), "facts": dataclasses.asdict(facts), "device": options.device, "pytorch_device": place,
                          "problems": results, "troubles": [dataclasses.asdict(t) for t in found]}, indent=2))
    else:
        print(doctor.stdout)
        _print_facts(facts, options.device)
        _print_results(place, results)
        _print_troubles(found)
    return 0 if results and all(r["quern"]["ok"] for r in results) and not found and doctor.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
