# SPDX-License-Identifier: Apache-2.0
"""FP8 matrices with their scales, for blocks of any of DeepGEMM's sizes; and their products."""

import dataclasses

import torch

from ..._public import found
from ..._scales import unpack_ue8m0_from_int
from . import _check
from ._run import run

_GRAN_MN, _GRAN_K = (1, 128), (32, 128)


@dataclasses.dataclass
class Operand:
    """Values [.., mn, k] of FP8, and their scales f32 [.., ceil(mn / gran_mn), ceil(k / gran_k)], or these packed as UE8M0;
    of bf16: scale None."""

    name: str
    values: torch.Tensor
    scale: "torch.Tensor | None" = None
    gran_mn: int = 1
    gran_k: int = 128

    def __getitem__(self, group):
        return dataclasses.replace(self, values=self.values[group], scale=None if self.scale is None else self.scale[group])

    def in_f32(self):
        """Returns the operand with scales of f32."""
        if self.scale.dtype == torch.float32:
            return self
        columns = -(-self.values.shape[-1] // self.gran_k)
        return dataclasses.replace(self, scale=unpack_ue8m0_from_int(self.scale)[..., :columns])

    def scale_of(self, begin):
        """Returns the scales f32 [mn] of the block of k that has `begin`, or [ceil(mn / 128)]."""
        return self.scale[:, begin // self.gran_k]


def _granularity(op, name, value, count):
    if not isinstance(value, (tuple, list)) or len(value) != count or \
            any(mn not in _GRAN_MN for mn in value[:-1]) or value[-1] not in _GRAN_K:
        accepted = "(gran_m, gran_n, gran_k)" if count == 3 else "(gran_mn, gran_k)"
        shown = tuple(value) if isinstance(value, (tuple, list)) else found(value)
        raise ValueError(f"{op}: {name} is {shown}; accepted: {accepted}, each of 1, 128, gran_k of 32, 128")
    return tuple(value)


def granularities(op, sfb, recipe, recipe_a=None, recipe_b=None):
    """Returns (gran_mn, gran_k) of a and of b. Without recipes: (1, 128), and for b (128, 128), or (1, 128) if sfb is packed."""
    if (recipe_a is None) != (recipe_b is None) or (recipe is not None and recipe_a is not None):
        raise ValueError(f"{op}: recipe is {recipe}, recipe_a {recipe_a} and recipe_b {recipe_b}; accepted: recipe alone, "
                         "recipe_a with recipe_b, or none of them")
    if recipe_a is not None:
        return _granularity(op, "recipe_a", recipe_a, 2), _granularity(op, "recipe_b", recipe_b, 2)
    if recipe is None:
        recipe = (1, 1, 128) if isinstance(sfb, torch.Tensor) and sfb.dtype == torch.int32 else (1, 128, 128)
    gran_m, gran_n, gran_k = _granularity(op, "recipe", recipe, 3)
    return (gran_m, gran_k), (gran_n, gran_k)


def operand(op, name, values, scale, gran, is_turned=False):
    """Checks an FP8 matrix, or a stack of them, with its scales, both as [.., mn, k].
    is_turned: the caller's are [.., k, mn]."""
    *lead, mn, k = values.shape
    _check.dtype(op, f"{name}[0]", values, _check.FP8)
    _check.either_contiguous(op, f"{name}[0]", values)
    _check.dtype(op, f"{name}[1]", scale, (torch.float32, torch.int32))
    columns = -(-k // (4 * gran[1] if scale.dtype == torch.int32 else gran[1]))
    _check.shape(op, f"{name}[1]", scale, *lead, -(-mn // gran[0]), columns, is_turned=is_turned)
    return Operand(name, values, scale, *gran)


def scales_of_op(a, b):
    """Returns scales as quern's op takes them, which has blocks of 1 x 128 of a, and of b of 1 x 128 or 128 x 128, or None: it has
    no such product. Its fast kernels are for 128 x 128 of b and read f32; those for 1 x 128 read UE8M0 as well."""
    if (a.gran_mn, a.gran_k, b.gran_k) != (1, 128, 128):
        return None
    if b.gran_mn == 1:
        return a.scale, b.scale
    a, b = a.in_f32(), b.in_f32()
    columns_are_apart = a.scale.shape[-1] > 1 and a.scale.stride(-1) != 1
    scale_a = a.scale.contiguous() if columns_are_apart and a.scale.stride(-2) != 1 else a.scale
    return scale_a, b.scale.contiguous()


def renamed(a, b, d="d", layout="grouped_layout"):
    """Returns the names of the arguments of quern's function."""
    one = "" if a.scale is None else "[0]"
    return {"a": a.name + one, "b": b.name + one, "scale_a": f"{a.name}[1]", "scale_b": f"{b.name}[1]", "out": d,
            "group_layout": layout}


def multiply(op, d, a, b, c, d_name="d"):
    """Computes d = c + a b^T of matrices. c: None, d or another one."""
    if a.scale is None:
        return run(op, "gemm", renamed(a, b, d_name), a.values, b.values, c, out=d)
    if scales := scales_of_op(a, b):
        return run(op, "gemm", renamed(a, b, d_name), a.values, b.values, c, scale_a=scales[0], scale_b=scales[1], out=d)
    _multiply_by_blocks(op, d, a, b, c)


def _multiply_by_blocks(op, d, a, b, c):
    """Computes multiply()'s d for blocks that quern's op does not have, one product a block of k: in each the scales of a row of
    b are one number, which is multiplied afterwards. All sums are f32."""
    a, b = a.in_f32(), b.in_f32()
    (m, k), n, step = a.values.shape, len(b.values), min(a.gran_k, b.gran_k)
    total = d if d.dtype == torch.float32 else torch.empty(m, n, dtype=torch.float32, device=d.device)
    if c is None:
        total.zero_()
    elif c is not total:
        total.copy_(c)
    part = torch.empty(m, n, dtype=torch.float32, device=d.device) if b.gran_mn == 1 else None
    ones = torch.ones(-(-n // 128), 1, dtype=torch.float32, device=d.device)
    for begin in range(0, k, step):
        pieces = a.values[:, begin:begin + step], b.values[:, begin:begin + step]
        scale_a, scale_b = a.scale_of(begin), b.scale_of(begin)
        scale_a = (scale_a if a.gran_mn == 1 else scale_a.repeat_interleave(128)[:m])[:, None].contiguous()
        if part is None:
            run(op, "gemm", renamed(a, b), *pieces, total, scale_a=scale_a, scale_b=scale_b[:, None].contiguous(), out=total)
        else:
            run(op, "gemm", renamed(a, b), *pieces, scale_a=scale_a, scale_b=ones, out=part)
            total.addcmul_(part, scale_b)
    if total is not d:
        d.copy_(total)
