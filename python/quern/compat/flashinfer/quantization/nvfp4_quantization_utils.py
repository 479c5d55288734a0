# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's settings of NVFP4: the scale of a tensor, and the search between two scales of a block, which quern has not."""

import dataclasses
import enum

import torch

from ...._public import flag, found
from ..._check import tensors

_UNSET = object()  # nothing was said: off, whatever FlashInfer's environment says


class NVFP44Over6ErrMode(enum.IntEnum):
    """What the search minimises: the sum of errors, or of their squares."""

    MAE = 0
    MSE = 1

    def __repr__(self):
        return f"{type(self).__name__}.{self.name}"


@dataclasses.dataclass(frozen=True)
class NVFP44Over6Config:
    """A search between a block's two scales, amax / 6 and amax / 4, of which e4m3_max is the largest."""

    e4m3_max: int = 448
    err_mode: NVFP44Over6ErrMode | str = NVFP44Over6ErrMode.MAE
    err_use_fast_math: bool = False

    def __post_init__(self):
        if self.e4m3_max not in (256, 448):
            raise ValueError(f"NVFP44Over6Config: e4m3_max is {found(self.e4m3_max)}; accepted: 256, 448")
        name = self.err_mode.upper() if isinstance(self.err_mode, str) else getattr(self.err_mode, "name", self.err_mode)
        if name not in NVFP44Over6ErrMode.__members__ and self.err_mode not in (0, 1):
            raise ValueError(f"NVFP44Over6Config: err_mode is {found(self.err_mode)}; accepted: 'MAE', 'MSE'")
        flag("NVFP44Over6Config", "err_use_fast_math", self.err_use_fast_math)
        mode = NVFP44Over6ErrMode[name] if isinstance(name, str) else NVFP44Over6ErrMode(self.err_mode)
        object.__setattr__(self, "err_mode", mode)

    @property
    def err_mode_name(self):
        return self.err_mode.name


def resolve_nvfp4_4over6(setting=_UNSET):
    """Returns the setting; None if nothing is said, as FlashInfer's environment is not read."""
    if setting is _UNSET or setting is None:
        return None
    if not isinstance(setting, NVFP44Over6Config):
        raise ValueError(f"resolve_nvfp4_4over6: setting is {found(setting)}; accepted: NVFP44Over6Config, None")
    return setting


def refuse_search(op, setting):
    """Refuses a search between scales."""
    if resolve_nvfp4_4over6(setting) is not None:
        raise NotImplementedError(f"{op}: nvfp4_4over6 is a NVFP44Over6Config; accepted: None")


def nvfp4_e4m3_max(config=None):
    """Returns the largest scale of a block."""
    return 448 if config is None else config.e4m3_max


def make_nvfp4_global_scale(input_tensor, per_token_activation, global_scale=None, nvfp4_4over6_config=None):
    """Returns f32 [1]: with per_token_activation 1 / (6 e4m3_max), else global_scale, else 6 e4m3_max / the largest magnitude. e4m3_max
    is the configuration's, 448 without one."""
    op = "make_nvfp4_global_scale"
    tensors(op, {"input_tensor": input_tensor})
    most = 6.0 * nvfp4_e4m3_max(resolve_nvfp4_4over6(nvfp4_4over6_config))
    if flag(op, "per_token_activation", per_token_activation):
        scale = 1 / most
    elif global_scale is not None:
        scale = global_scale
    else:
        top = input_tensor.abs().max().float()
        return torch.where(top == 0, torch.finfo(torch.float32).max, most / top).reshape(1)
    return torch.tensor([scale], dtype=torch.float32, device=input_tensor.device)
