# SPDX-License-Identifier: Apache-2.0
"""What `python -m quern.torch` finds on a machine: PyTorch, cards, switches; and the troubles that follow.

The module imports neither PyTorch nor quern's own PyTorch part, as it has to work where they do not.
"""

import dataclasses
import glob
import os
import platform
import re
import subprocess
import sys

# Switches of other projects that decide which attention runs, or how fast.
SWITCHES = ("AMD_SERIALIZE_KERNEL", "AMD_SERIALIZE_COPY", "HIP_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING",
            "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL", "TORCH_ROCM_AOTRITON_PREFER_DEFAULT", "TORCH_ROCM_FA_PREFER_CK",
            "HSA_OVERRIDE_GFX_VERSION", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_READ_ONCE = ("TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL", "TORCH_ROCM_AOTRITON_PREFER_DEFAULT", "TORCH_ROCM_FA_PREFER_CK")
_EXPERIMENTAL = "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"


@dataclasses.dataclass
class Facts:
    """What is known of the machine. None: not known, or not there."""

    python: str = ""
    torch: str | None = None  # version
    torch_error: str | None = None  # why it cannot be imported
    hip: str | None = None  # the version that this PyTorch was built for
    cuda: str | None = None
    is_available: bool = False  # PyTorch sees a GPU
    name: str | None = None  # the GPU's name
    arch: str | None = None  # "gfx1151"
    built_for: list = dataclasses.field(default_factory=list)  # architectures in PyTorch
    has_flash: bool | None = None  # flash attention was built in
    preferred: str | None = None  # PyTorch's preferred library for attention on ROCm
    cards: list = dataclasses.field(default_factory=list)  # AMD GPUs that the kernel driver has, "gfx1151"
    can_open_driver: bool = True  # /dev/kfd
    switches: dict = dataclasses.field(default_factory=dict)
    late: list = dataclasses.field(default_factory=list)  # switches that this process set or changed itself
    quern: str = ""
    quern_devices: list = dataclasses.field(default_factory=list)
    quern_error: str | None = None  # why quern cannot use the driver of a card that is there


@dataclasses.dataclass
class Trouble:
    what: str
    fix: str


def arch_of(version):
    """gfx_target_version, 110501 or 90010 -> "gfx1151", "gfx90a"; 0, a processor's, -> None."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else None


def _cards(root="/sys/class/kfd/kfd/topology/nodes"):
    found = []
    for path in sorted(glob.glob(f"{root}/*/properties")):
        try:
            with open(path) as file:
                version = re.search(r"^gfx_target_version (\d+)$", file.read(), re.MULTILINE)
        except OSError:
            continue
        if version and (arch := arch_of(int(version[1]))):
            found.append(arch)
    return found


def _at_start():
    """Returns the environment that the process was started with; None if /proc does not tell."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = file.read().split(b"\0")
    except OSError:
        return None
    return dict(pair.decode(errors="replace").partition("=")[::2] for pair in pairs if pair)


def _put_torch(facts):
    try:
        import torch
    except Exception as error:  # whatever a broken installation raises
        facts.torch_error = f"{type(error).__name__}: {error}"
        return
    facts.torch, facts.hip, facts.cuda = torch.__version__, torch.version.hip, torch.version.cuda
    facts.is_available = torch.cuda.is_available()
    if hasattr(torch.backends.cuda, "is_flash_attention_available"):
        facts.has_flash = torch.backends.cuda.is_flash_attention_available()
    if not facts.is_available:
        return
    properties = torch.cuda.get_device_properties(0)
    facts.name, facts.built_for = properties.name, torch.cuda.get_arch_list()
    facts.arch = getattr(properties, "gcnArchName", f"sm_{properties.major}{properties.minor}").partition(":")[0]
    if facts.hip and hasattr(torch.backends.cuda, "preferred_rocm_fa_library"):
        facts.preferred = str(torch.backends.cuda.preferred_rocm_fa_library()).rpartition(".")[2]


def gather():
    """Returns the facts of this process and this machine."""
    import quern
    facts = Facts(python=platform.python_version(), cards=_cards(), quern=quern.__version__,
                  can_open_driver=os.access("/dev/kfd", os.R_OK | os.W_OK))
    facts.switches = {name: os.environ[name] for name in SWITCHES if name in os.environ}
    start = _at_start()
    if start is not None:
        facts.late = [name for name in SWITCHES if os.environ.get(name) != start.get(name)]
    _put_torch(facts)
    facts.quern_devices = quern.devices()
    if facts.cards and "hip:0" not in facts.quern_devices:
        try:
            quern.device("hip:0")
        except (LookupError, RuntimeError, ValueError) as error:
            facts.quern_error = str(error)
    return facts


def examine(device=None, as_json=False):
    """Runs quern doctor, whose python3 is then this Python; returns what subprocess.run does.

    device: as the option --device of quern.torch; doctor takes only those that name one device.
    """
    from .._native import find
    command = [find("bin/quern"), "doctor", *(["--json"] if as_json else [])]
    if device and (device == "cpu" or ":" in device):
        command += ["--device", device]
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    return subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)


# ---- what follows

def _is_on(facts, name):
    return facts.switches.get(name, "") not in ("", "0")


def _import_trouble(facts):
    error = facts.torch_error
    missing = re.search(r"(\S+\.so[.\d]*)", error)
    if "No module named 'torch'" in error:
        return Trouble("PyTorch is not installed for this Python", "pip install torch, from the index for the card")
    if missing:
        return Trouble(f"PyTorch does not load, {missing[1]} is not found or does not fit: {error}",
                       "install the ROCm or CUDA runtime of the version that this wheel was built for, or add the folder "
                       f"that has {missing[1]} to LD_LIBRARY_PATH")
    return Trouble(f"PyTorch does not load: {error}", "reinstall the wheel")


def _wheel_troubles(facts):
    if facts.cards and not facts.hip:
        kind = f"CUDA {facts.cuda}" if facts.cuda else "the CPU alone"
        yield Trouble(f"the wrong wheel: this PyTorch is for {kind}, the card is {facts.cards[0]}",
                      f"install a ROCm wheel that has {facts.cards[0]}")
    elif facts.hip and not facts.is_available:
        yield _invisible(facts)
    elif facts.hip and facts.built_for and facts.arch not in [arch.partition(":")[0] for arch in facts.built_for]:
        yield Trouble(f"the wrong wheel for the card: {facts.arch} is not among {' '.join(facts.built_for)}",
                      f"install a ROCm wheel that has {facts.arch}")
    if facts.is_available and facts.has_flash is False:
        yield Trouble("this PyTorch was built without flash attention", "install a wheel with it, or quern.torch.enable()")


def _invisible(facts):
    hidden = [name for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
              if name in facts.switches]
    if not facts.cards:
        return Trouble("PyTorch is for ROCm, but the kernel driver has no AMD GPU", "load amdgpu; see dmesg")
    if not facts.can_open_driver:
        return Trouble("/dev/kfd cannot be opened", "add the user to the groups render and video, and log in again")
    return Trouble(f"PyTorch sees no GPU, though the driver has {facts.cards[0]}",
                   f"unset {' and '.join(hidden)}" if hidden else "compare this wheel's ROCm with the driver's version")


def _switch_troubles(facts):
    for name in ("AMD_SERIALIZE_KERNEL", "AMD_SERIALIZE_COPY", "HIP_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING"):
        if _is_on(facts, name):
            yield Trouble(f"serialisation was left on, {name}={facts.switches[name]}: every launch waits for its end",
                          f"unset {name} once nothing is being debugged")
    for name in facts.late:
        if name in _READ_ONCE and name in facts.switches:
            yield Trouble(f"{name} was set by the program itself; PyTorch reads it once, and may have before",
                          f"set it before Python starts: export {name}={facts.switches[name]}")
    if "HSA_OVERRIDE_GFX_VERSION" in facts.switches:
        yield Trouble(f"HSA_OVERRIDE_GFX_VERSION={facts.switches['HSA_OVERRIDE_GFX_VERSION']} makes the card pass for another, "
                      "whose kernels may be slow or wrong on it", "unset it, and install a wheel for the card itself")
    if _is_on(facts, "TORCH_ROCM_FA_PREFER_CK") and facts.arch and not facts.arch.startswith("gfx9"):
        yield Trouble(f"TORCH_ROCM_FA_PREFER_CK asks for a library that has no attention for {facts.arch}",
                      "unset TORCH_ROCM_FA_PREFER_CK")


def troubles(facts, refusals=()):
    """Returns what is wrong, each with its fix. refusals: the reasons that PyTorch's own attention gave."""
    found = [_import_trouble(facts)] if facts.torch_error else list(_wheel_troubles(facts))
    found += _switch_troubles(facts)
    if any("experimental" in text.lower() for text in refusals) and not _is_on(facts, _EXPERIMENTAL):
        found.append(Trouble(f"PyTorch keeps flash attention for {facts.arch} behind its experimental gate",
                             f"export {_EXPERIMENTAL}=1 before Python starts, or quern.torch.enable()"))
    if facts.quern_error:
        found.append(Trouble(f"quern cannot use the card: {facts.quern_error}",
                             "install the HIP runtime, or name its library in QUERN_HIP_LIBRARY"))
    return found
