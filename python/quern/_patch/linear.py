# SPDX-License-Identifier: Apache-2.0
"""Linear layers together with what follows them, in one product: GELU's tanh form, or a gate and a residual. Linear layers by
themselves where quern was measured to be faster. And transformers' FP8Linear."""

import torch

from ..torch._gradients import is_needed
from . import Replacement, Unfit, table, trial

CHOICES = ("fast", "all", "none")
HALVES = (torch.bfloat16, torch.float16)  # what "all" takes: on GPUs quern multiplies f32 to fewer bits than PyTorch
_ACTIVATIONS = {None: 0, "gelu_tanh": 1}
_FEW = 256  # rows; with fewer, what follows the product costs nothing that shows


def is_plain(x, layer):
    """Returns whether calling this layer does nothing but multiply and add."""
    return (type(layer) is torch.nn.Linear and not layer._forward_hooks and not layer._forward_pre_hooks
            and ("forward" not in layer.__dict__ or _is_ours(layer)) and not torch.is_autocast_enabled(x.device.type))


def _is_ours(layer):
    return getattr(getattr(layer.__dict__["forward"], "__func__", None), "is_quern_linear", False)


# ---- where quern's product is the faster one: docs/performance_h200.md

def _is_fast_on(device):
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) == (9, 0)


def want_halves(weight):
    if weight.dtype not in HALVES:
        raise Unfit(f"its weights are {weight.dtype}; quern takes bf16 and f16")


def want(run, module):
    """Raises Unfit unless the user wants products by quern where this module is."""
    weight = next(module.parameters())
    if run.linears == "none":
        raise Unfit("linears is 'none'")
    if run.linears == "fast" and (run.device is not None or weight.dtype != torch.bfloat16 or not _is_fast_on(weight.device)):
        raise Unfit("PyTorch's own products are as fast here; linears='all' takes quern's")
    want_halves(weight)


def takes(linears, x, layer):
    """Returns whether quern computes layer(x) and what follows it."""
    if not is_plain(x, layer) or linears == "none" or is_needed(x, layer.weight, layer.bias):
        return False
    if linears == "all":
        return x.dtype == layer.weight.dtype and x.dtype in HALVES
    return (x.dtype == layer.weight.dtype == torch.bfloat16 and _is_fast_on(x.device) and x.numel() >= _FEW * x.shape[-1]
            and not layer.weight.shape[0] % 8 and not layer.weight.shape[1] % 8)


def wide(x):
    """Returns x, of f16 in f32: the product's bias and gate are bf16 or f32."""
    return x.float() if x is not None and x.dtype == torch.float16 else x


# ---- residual + gate * activation(layer(x))

def multiply(run, x, layer, activation=None, gate=None, residual=None, out=None, is_chosen=False):
    """Returns residual + gate * activation(layer(x)): x [..., k], gate [batch, n], residual and out [..., n]. is_chosen: the
    caller knows that quern computes it."""
    if is_needed(x, layer.weight, layer.bias, gate, residual):  # quern's product has no gradients
        run.note_pytorch("gemm")
        y = torch.nn.functional.linear(x, layer.weight, layer.bias) if is_chosen else layer(x)
        return by_pytorch(y, activation, gate, residual, out)
    if not is_chosen and not run.takes(x, layer):
        return by_pytorch(layer(x), activation, gate, residual, out)
    n = layer.weight.shape[0]
    if out is None:
        out = torch.empty(*x.shape[:-1], n, dtype=x.dtype, device=x.device)
    c = None if residual is None else residual.reshape(-1, n)
    run("gemm", out.view(-1, n), x.reshape(-1, x.shape[-1]), layer.weight, c, None, None, wide(layer.bias),
        wide(gate), None, None, _ACTIVATIONS[activation], 0.0, False)
    return out


def by_pytorch(y, activation=None, gate=None, residual=None, out=None):
    """Returns residual + gate * activation(y), of y's dtype."""
    z = y if activation is None else torch.nn.functional.gelu(y, approximate="tanh")
    if gate is not None:
        batches, n = gate.shape
        z = (z.view(batches, z.numel() // max(batches * n, 1), n) * gate.unsqueeze(1)).view(z.shape)
    z = z if residual is None else residual + z
    return z.to(y.dtype) if out is None else out.copy_(z)


# ---- a linear layer by itself

def _device_name(device):
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _ranges(layer):
    """Returns the ranges of rows with which quern is the faster one for this layer where it is."""
    weight = layer.weight
    if weight.dtype != torch.bfloat16 or weight.device.type == "meta":
        return ()
    return table.shipped().get((_device_name(weight.device), *weight.shape, layer.bias is not None), ())


def is_fast_linear(module):
    return type(module) is torch.nn.Linear and bool(_ranges(module))


def _linear_function(run, like, ranges):
    """Makes the forward of a layer like this one: quern's where the table says so, and the layer as it was measured."""
    shape, has_bias, device = like.weight.shape, like.bias is not None, like.weight.device

    def is_faster(self, x):
        m = x.numel() // shape[1]
        return (any(first <= m <= last for first, last in ranges) and x.dtype == self.weight.dtype == torch.bfloat16
                and x.device == self.weight.device == device and self.weight.shape == shape and x.shape[-1] == shape[1]
                and (self.bias is not None) == has_bias and x.is_contiguous() and self.weight.is_contiguous()
                and not torch.is_autocast_enabled(device.type))

    def forward(self, input):
        if is_faster(self, input):
            return multiply(run, input, self, is_chosen=True)
        run.note_pytorch("gemm")
        return torch.nn.functional.linear(input, self.weight, self.bias)

    forward.is_quern_linear = True
    return forward


def _words_of(ranges):
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in ranges)


def linear(run, module):
    """Replaces a layer that the table has. There is no trial: the class is PyTorch's own."""
    if run.linears == "none":
        raise Unfit("linears is 'none'")
    if run.device is not None:
        raise Unfit("the table of linear layers is of products where their tensors are")
    ranges = _ranges(module)
    return Replacement("linear", _linear_function(run, module, ranges), is_trained=True, note=f"quern with {_words_of(ranges)} rows, else PyTorch")


# ---- every linear layer, with linears="all"

def is_linear(module):
    return type(module) is torch.nn.Linear


def _every_function(run):
    def forward(self, input):
        if input.dtype != self.weight.dtype:
            raise NotImplementedError(f"patched Linear: its input is {input.dtype} and its weights are {self.weight.dtype}; "
                                      "accepted: one dtype")
        return multiply(run, input, self, is_chosen=True)

    forward.is_quern_linear = True
    return forward


def every_linear(run, module):
    """Replaces a layer. There is no trial: the class is PyTorch's own."""
    want_halves(module.weight)
    return Replacement("linear", _every_function(run), is_trained=True)


# ---- diffusers' GELU, which holds its layer

def is_gelu(module):
    return type(module).__name__ == "GELU" and "proj" in module._modules


def _gelu_function(run):
    return lambda self, hidden_states: multiply(run, hidden_states, self.proj, "gelu_tanh")


def gelu(run, module):
    want(run, module)
    twin, x = trial.twin(module, modules={"proj": trial.linear(6, 8)}), 2 * trial.numbers(4, 5, 6)
    if not trial.agree(trial.run(_gelu_function(run.plain), twin, x), trial.run(type(module).forward, twin, x)):
        raise Unfit("its activation is not the tanh form of GELU")
    return Replacement("gemm", _gelu_function(run), is_trained=True)


# ---- transformers' FP8Linear: groups of 128 of x are quantised, weights are in blocks of 128 x 128

def is_fp8_linear(module):
    return type(module).__name__ == "FP8Linear" and hasattr(module, "weight_scale_inv")


def _quantize(run, rows):
    """Returns rows in FP8 and their scales, whose columns are contiguous, as the copy engine of Hopper wants them."""
    m, k = rows.shape
    q = torch.empty(m, k, dtype=torch.float8_e4m3fn, device=rows.device)
    scale = torch.empty(-(-k // 128), -(-m // 4) * 4, dtype=torch.float32, device=rows.device).t()[:m]
    run("quantize_groups", q, scale, rows, 128, False, 1e-12)
    return q, scale


def _fp8_function(run):
    def forward(self, input):
        rows = input.reshape(-1, input.shape[-1])
        dtype = torch.bfloat16 if input.dtype == torch.bfloat16 else torch.float32
        out = torch.empty(rows.shape[0], self.weight.shape[0], dtype=dtype, device=rows.device)
        q, scale = _quantize(run, rows)
        run("gemm", out, q, self.weight, None, scale, self.weight_scale_inv, wide(self.bias), None, None, None, 0, 0.0, False)
        return out.to(input.dtype).view(*input.shape[:-1], -1)

    return forward


def fp8_linear(run, module):
    """Replaces an FP8Linear. There is no trial: its own product runs on GPUs alone."""
    if run.linears == "none":
        raise Unfit("linears is 'none'")
    if module.weight.dtype != torch.float8_e4m3fn or module.weight_scale_inv.dtype != torch.float32:
        raise Unfit(f"its weights are {module.weight.dtype} with scales of {module.weight_scale_inv.dtype}; "
                    "quern takes e4m3fn with f32")
    if tuple(module.block_size or ()) != (128, 128) or module.activation_scheme != "dynamic":
        raise Unfit(f"its blocks are {module.block_size}, its scheme {module.activation_scheme!r}; "
                    "quern takes 128 x 128 and 'dynamic'")
    return Replacement("fp8_linear", _fp8_function(run))
