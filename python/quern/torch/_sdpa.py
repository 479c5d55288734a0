# SPDX-License-Identifier: Apache-2.0
"""quern's attention under torch.nn.functional.scaled_dot_product_attention, eager and compiled, with gradients.

A kernel for aten::scaled_dot_product_attention stands before PyTorch's own choice among FLASH, EFFICIENT and MATH. The
kernel looks at the call's shapes and dtypes alone, and hands calls that quern does not compute to PyTorch, with the
reason.
"""

import collections
import logging

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from .. import _tensor
from .. import last_kernel as _last_kernel
from .._attention import attention
from .._native import ffi
from . import _compiled, _gradients, _rows, _slow
from ._ops import library, refuse_when_recorded

_logger = logging.getLogger("quern.torch")
calls = collections.Counter()  # kernel -> how many calls of PyTorch's it computed, in this process
_ATEN = torch.ops.aten.scaled_dot_product_attention.default
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor, FunctionalTensor)
_IMPL = "quern"  # the name for torch.nn.attention.activate_flash_attention_impl
_MAX_HEAD_DIM = 512


# ---- which calls are quern's

def _reason_of_mask(attn_mask, is_causal):
    if attn_mask is None:
        return None
    if is_causal:  # PyTorch's error; PyTorch 2.6 gives none when FLASH computes
        raise RuntimeError("scaled_dot_product_attention: attn_mask and is_causal are both given; accepted: one of them")
    if attn_mask.dtype not in (torch.bool, torch.float64, *_DTYPES):
        return f"attn_mask has dtype {attn_mask.dtype}"
    return None


def _reason_of_shapes(query, key, value, enable_gqa):
    if min(query.ndim, key.ndim, value.ndim) < 2:
        return "query, key or value has fewer than 2 dimensions"
    if key.shape[-1] != query.shape[-1] or key.shape[-2] != value.shape[-2]:
        return f"query, key and value have shapes {[*query.shape]}, {[*key.shape]}, {[*value.shape]}, which do not fit"
    for name, dim in (("query", query.shape[-1]), ("value", value.shape[-1])):
        if not 1 <= dim <= _MAX_HEAD_DIM:
            return f"{name} has head_dim {dim}; quern takes 1 to {_MAX_HEAD_DIM}"
    if enable_gqa and (query.ndim < 3 or key.ndim < 3 or value.ndim < 3 or key.shape[-3] != value.shape[-3] or
                       key.shape[-3] == 0 or query.shape[-3] % key.shape[-3]):
        return f"enable_gqa: query has {[*query.shape]}, key {[*key.shape]}: heads are no multiple"
    return None


def reason(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """Returns why a call is not quern's, as a text; None if it is quern's. Looks at metadata alone, not for a
    kernel."""
    tensors = [t for t in (query, key, value, attn_mask) if t is not None]
    for t in tensors:
        if type(t) not in _PLAIN or t.is_nested or t.layout != torch.strided:
            return f"{type(t).__name__}s are no plain strided tensors"
    if len({t.device for t in tensors}) != 1:
        return f"tensors are on {', '.join(sorted({str(t.device) for t in tensors}))}"
    if query.dtype not in _DTYPES or key.dtype != query.dtype or value.dtype != query.dtype:
        return f"dtypes are {query.dtype}, {key.dtype}, {value.dtype}; quern takes one of float32, float16, bfloat16"
    if not 0 <= dropout_p < 1 or scale == 0:
        return f"dropout_p is {dropout_p}" if scale != 0 else "scale is 0"
    return _reason_of_mask(attn_mask, is_causal) or _reason_of_shapes(query, key, value, enable_gqa)


def _has_fast_gradients(query, value, attn_mask, dropout_p, device):
    """Returns whether kernels on matrix cores give all gradients of a call on a GPU."""
    backend = "hip" if torch.version.hip else "cuda"
    arch = _tensor.device(device or f"{backend}:{query.device.index or 0}").arch
    fits = all(dim % 8 == 0 and dim <= 128 for dim in (query.shape[-1], value.shape[-1]))
    if query.dtype == torch.float32 or not fits:
        return False
    if arch.startswith("sm_"):
        return arch == "sm_90" and attn_mask is None and dropout_p == 0
    if query.dtype == torch.float16 and arch.startswith("gfx90a"):
        return False
    is_summed = attn_mask is not None and (attn_mask.ndim < 2 or 1 in attn_mask.shape[-2:])  # over queries or keys
    return not (is_summed and attn_mask.requires_grad)


def _reason_of_gradients(query, key, value, attn_mask, dropout_p, device, allow_slow):
    """Returns why autograd's call is not quern's: on a GPU some gradients have slow kernels alone."""
    is_on_cpu = query.device.type == "cpu" and not device
    if not _gradients.is_needed(query, key, value, attn_mask) or is_on_cpu or allow_slow or \
            _has_fast_gradients(query, value, attn_mask, dropout_p, device):
        return None
    return "an argument requires a gradient, which quern computes slowly for this call; fast on AMD GPUs: float16 (not on gfx90a) " \
           "and bfloat16, head_dim in multiples of 8 up to 128, no gradient of an attn_mask that repeats queries or keys; " \
           "on Hopper: the same without attn_mask and dropout; allow_slow=True takes it all the same"


# ---- the call

def _dense(x, batch, heads=None):
    """Returns x [..., (heads,) n, dim] as [batch, heads, n, dim], its leading dimensions broadcast."""
    x = x[(None,) * (len(batch) + 3 - x.ndim)]
    x = x.expand(*batch, x.shape[-3] if heads is None else heads, -1, -1)
    return x.reshape(-1, *x.shape[-3:]) if len(batch) != 1 else x


def _dense_mask(mask, batch):
    """Returns a mask of at most four dimensions, each 1 or whole."""
    if mask.dtype == torch.float64:
        mask = mask.float()
    if mask.ndim < 2:
        mask = mask.expand(1, -1) if mask.ndim else mask.expand(1, 1)
    if mask.ndim <= 4 and len(batch) <= 1:
        return mask if len(batch) == 1 or mask.ndim < 4 else mask.flatten(0, -4)
    mask = mask[(None,) * (len(batch) + 3 - mask.ndim)]
    return mask.expand(*batch, -1, -1, -1).reshape(-1, *mask.shape[-3:])


def _shape(query, key, value, enable_gqa):
    """Returns the leading dimensions before the heads, and the heads, after broadcasting."""
    shapes = [t.shape[:-3] for t in (query, key, value)]
    heads = [t.shape[-3] if t.ndim > 2 else 1 for t in (query, key, value)]
    return torch.broadcast_shapes(*shapes), (heads[0] if enable_gqa else torch.broadcast_shapes(*[(h,) for h in heads])[0])


def _result(query, key, value, enable_gqa):
    """Makes a new output. If query is [batch, n, heads, dim] in memory, as models make it, so is the output."""
    batch, heads = _shape(query, key, value, enable_gqa)
    ndim = max(query.ndim, key.ndim, value.ndim)
    n, dim = query.shape[-2], value.shape[-1]
    if ndim == 4 and query.ndim == 4 and query.stride(1) < query.stride(2):
        return query.new_empty(*batch, n, heads, dim).transpose(1, 2)
    return query.new_empty(*batch, heads, n, dim) if ndim > 2 else query.new_empty(n, dim)


def _run(out, query, key, value, mask, options, device):
    """Runs attention from [batch, heads, n, dim] tensors into another such tensor, staged to the device if one is
    named."""
    if not device:
        attention(*map(_gradients.contiguous_rows, (query, key, value)), layout="HND", mask=mask, out=out, **options)
        return
    there = _tensor.device(device)
    q, k, v = (_tensor.to(t.contiguous(), there) for t in (query, key, value))
    mask = None if mask is None else _tensor.to(mask.contiguous(), there)
    if options["sinks"] is not None:
        options = {**options, "sinks": _tensor.to(options["sinks"].contiguous(), there)}
    result = attention(q, k, v, layout="HND", mask=mask, **options)
    back = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
    ffi.copy(back, result)
    if back is not out:
        out.copy_(back)


def _reason_of_slowness(error, query, value, dropout_p):
    """Returns a text that does not depend on the numbers of queries and keys, only on their layout."""
    dims = query.shape[-1] if query.shape[-1] == value.shape[-1] else f"{query.shape[-1]} and {value.shape[-1]}"
    dropout = f", dropout_p {dropout_p:g}" if dropout_p else ""
    return f"{query.dtype} with head_dim {dims}{dropout}: {error}; allow_slow=True takes it all the same"


def _compute(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, device, sinks=None, window_left=-1,
             logits_soft_cap=0.0, allow_slow=False):
    """The custom op's real kernel. PyTorch's function lacks sinks, window_left and logits_soft_cap; models ask for
    them."""
    batch, heads = _shape(query, key, value, enable_gqa)
    out = _result(query, key, value, enable_gqa)
    if out.numel() == 0:
        return out
    options = {"is_causal": is_causal, "is_top_left": True, "sm_scale": scale, "dropout_p": dropout_p, "sinks": sinks,
               "window_left": window_left, "logits_soft_cap": logits_soft_cap}
    mask = None if attn_mask is None else _dense_mask(attn_mask, batch)
    dense = _dense(query, batch, heads), *(_dense(t, batch, None if enable_gqa else heads) for t in (key, value))
    view = out if out.ndim == 4 else out.view(-1, heads, *out.shape[-2:])
    state = torch.get_rng_state() if dropout_p > 0 else None
    if dropout_p > 0:  # from PyTorch's generator, so that torch.manual_seed acts
        options["dropout_seed"] = int(torch.empty((), dtype=torch.int64).random_())
    try:
        _slow.run(allow_slow, _run, view, *dense, mask, options, device)
    except NotImplementedError as error:  # no kernel for this on the device, or a slow one
        why = _reason_of_slowness(error, query, value, dropout_p) if isinstance(error, _slow.Slow) else str(error)
        if sinks is not None or window_left >= 0 or logits_soft_cap:
            raise NotImplementedError(why) from None
        if state is not None:
            torch.set_rng_state(state)  # PyTorch draws the numbers again
        _turn_down(why)
        result = _ATEN.decompose(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        return result if result.stride() == out.stride() else out.copy_(result)  # a graph relies on the strides of out
    _count(_last_kernel())
    return out


library.define("scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float dropout_p, "
               "bool is_causal, float? scale, bool enable_gqa, str device, Tensor? sinks=None, int window_left=-1, "
               "float logits_soft_cap=0.0, bool allow_slow=False) -> Tensor",
               tags=(torch.Tag.nondeterministic_seeded,))
library.impl("scaled_dot_product_attention", _compute, "CompositeExplicitAutograd")
refuse_when_recorded("scaled_dot_product_attention", ("query", "key", "value", "attn_mask"))


@torch.library.register_fake("quern::scaled_dot_product_attention", lib=library)
def _fake(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, device, sinks=None, window_left=-1,
          logits_soft_cap=0.0, allow_slow=False):
    return _result(query, key, value, enable_gqa)


# ---- on and off

class Registration:
    """What enable() made. The end of a `with enable(...):` block removes it, and so does remove().

    device     where attention runs; None: where its tensors are
    calls      kernel -> how many calls it computed
    fallbacks  reason -> how many calls PyTorch computed
    """

    def __init__(self, device, fallback, allow_slow):
        self.device, self.fallback, self.allow_slow = device, fallback, allow_slow
        self.calls, self.fallbacks = collections.Counter(), collections.Counter()
        self._library = torch.library.Library("aten", "IMPL")
        for backend in _backends(device):
            for key in (backend, "Autograd" + backend):
                self._library.impl("scaled_dot_product_attention", _scaled_dot_product_attention, key)
        _compiled.switch(f"{ffi.version()} on {device or 'any device'}, fallback={fallback!r}, allow_slow={allow_slow}")

    def remove(self):
        global _active
        if self._library is not None:
            self._library._destroy()
            self._library = None
        if _active is self:
            _active = None
            _compiled.switch("")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        disable()


_active = None
_others_fallbacks = collections.Counter()  # fallbacks of calls by name, and of programs exported while quern was
                                           # enabled
_ASKED = (None, "log", False)
_asked = _ASKED  # what the next activation is to do


def _backends(device):
    """Returns PyTorch's names for the kinds of tensors that are taken."""
    if device is None:
        return "CPU", "CUDA"  # a ROCm build's name for its GPUs, too
    return ("CPU",) if device == "cpu" or device.startswith("sim:") else ("CUDA",)


def _turn_down(why):
    """Leaves a call to PyTorch: says so, once for each reason, or raises."""
    if _active is not None and _active.fallback == "error":
        raise NotImplementedError(f"scaled_dot_product_attention: {why}")
    counts = _others_fallbacks if _active is None else _active.fallbacks
    if not counts[why]:
        _logger.warning("scaled_dot_product_attention: PyTorch computes it: %s", why)
    counts[why] += 1


def _scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None,
                                  enable_gqa=False):
    """The kernel of aten::scaled_dot_product_attention."""
    arguments = query, key, value, attn_mask, dropout_p, is_causal
    is_allowed = torch._C._get_flash_sdp_enabled()  # quern stands in FLASH's place, so sdpa_kernel([MATH]) means
                                                    # PyTorch's MATH
    why = reason(*arguments, scale, enable_gqa) if is_allowed else None
    if why is None and is_allowed and _active is not None:
        why = _reason_of_gradients(query, key, value, attn_mask, dropout_p, _staging(_active.device), _active.allow_slow)
    if why is not None:
        _turn_down(why)
    elif not is_allowed and _active is not None:  # the program asked for it: counted without a warning
        _active.fallbacks["FLASH_ATTENTION is switched off"] += 1
    if why is not None or not is_allowed or _active is None:
        return _ATEN.decompose(*arguments, scale=scale, enable_gqa=enable_gqa)
    return attend(*arguments, scale, enable_gqa, _staging(_active.device), allow_slow=_active.allow_slow)


def attend(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, device, sinks=None, window_left=-1,
           logits_soft_cap=0.0, allow_slow=False):
    """Computes a call that is quern's, by the custom op for inference or, if autograd needs it, by the one for training."""
    if not _gradients.is_needed(query, key, value, attn_mask, sinks):
        return torch.ops.quern.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale,
                                                            enable_gqa, device, sinks, window_left, logits_soft_cap, allow_slow)
    batch, heads = _shape(query, key, value, enable_gqa)
    mask = None if attn_mask is None else _dense_mask(attn_mask, batch)
    dense = _dense(query, batch, heads), *(_dense(t, batch, None if enable_gqa else heads) for t in (key, value))
    out = _gradients.attend(*dense, mask, dropout_p, is_causal, scale, device, sinks, window_left, logits_soft_cap, allow_slow)
    ndim = max(query.ndim, key.ndim, value.ndim)
    return out if ndim == 4 else out.reshape(*batch, *out.shape[1 if ndim > 2 else 2:])


def _count(kernel):
    calls[kernel] += 1
    if _active is not None:
        _active.calls[kernel] += 1


_gradients.note = _count


def _count_rows(kernel):
    calls[kernel] += 1


_rows.note = _count_rows


def _staging(device):
    """Returns the custom op's `device`, to which tensors are copied; "": they are not copied."""
    return device if device is not None and device.startswith("sim:") else ""


def _activate():
    """Does what torch.nn.attention.activate_flash_attention_impl("quern") asks for."""
    global _active, _asked
    before, _active = _active, None
    if before is not None:
        before.remove()
    options, _asked = _asked, _ASKED
    _active = Registration(*options)
    return _active


def _registry():
    """Returns PyTorch's own registration of attention implementations, which 2.10 has; None before."""
    import torch.nn.attention as place
    names = "register_flash_attention_impl", "activate_flash_attention_impl", "restore_flash_attention_impl"
    return place if all(hasattr(place, name) for name in names) else None


def known_device(op, device):
    """Returns a device argument's text, checked; opens a simulated device. Raises ValueError."""
    if device is None:
        return None
    device = str(device)
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda", "hip", "sim"):
        raise ValueError(f"{op}: device is {device!r}; accepted: None, 'cpu', 'cuda', 'hip', 'sim:ARCH'")
    return _tensor.device(device).spec if kind == "sim" else device


def enable(device=None, fallback="log", allow_slow=False):
    """Puts quern's attention under torch.nn.functional.scaled_dot_product_attention, for this process. Returns a
    Registration.

    device    None: calls run where their tensors are. "cpu", "cuda", "hip": only calls on such tensors. "sim:gfx942":
              tensors on the CPU are copied to a simulated GPU for each call, and the result back; this is not for speed
    fallback  calls that quern does not compute go to PyTorch: "log" says why, once for each reason, on the logger
              quern.torch; "error" raises NotImplementedError instead

    allow_slow  whether quern computes calls for which a GPU has only a slow kernel: f32, dropout, head dims that are no
              multiples of 8 up to 256, strides that no fast kernel takes. Else these calls go to PyTorch, too

    Calls that need gradients are quern's as well: on an AMD GPU f16 (not on gfx90a) and bf16, head dims in multiples of 8 up to 128,
    without dropout and without a gradient of an attn_mask that repeats queries or keys; on Hopper the same without attn_mask; and others
    with allow_slow. If a query sees no key, its result is 0. An attn_mask of any float dtype is added as it is. quern stands where
    FLASH_ATTENTION does: inside an sdpa_kernel without FLASH_ATTENTION, PyTorch computes. The logger names graphs that torch.compile
    made before; they are made again.
    quern uses PyTorch's registration of attention implementations if there is one
    (activate_flash_attention_impl("quern") does what enable() does), else it overrides the operator. Raises ValueError
    (device, fallback), LookupError (no such device).
    """
    global _asked
    if fallback not in ("log", "error"):
        raise ValueError(f"enable: fallback is {fallback!r}; accepted: 'log', 'error'")
    device = known_device("enable", device)
    _asked = (device, fallback, bool(allow_slow))
    place = _registry()
    return _activate() if place is None else (place.activate_flash_attention_impl(_IMPL), _active)[1]


def disable():
    """Undoes enable(). Does nothing if quern is not enabled."""
    place = _registry()
    if _active is None:
        return
    if place is None:
        _active.remove()
    else:
        place.restore_flash_attention_impl()


if (_place := _registry()) is not None:
    _place.register_flash_attention_impl(_IMPL, register_fn=_activate)
