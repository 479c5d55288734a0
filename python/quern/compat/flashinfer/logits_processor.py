# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's pipelines from logits to tokens: LogitsPipe([Temperature(), Softmax(), TopK(), TopP(), Sample()]).

Neighbours become one call where there is one: a temperature with its softmax, choices with the sampling behind them. That is so with and
without compile, so that both give the same tokens.
"""

import dataclasses
import enum

import torch

from ..._public import flag, found
from . import sampling
from ._hints import check_flags, refuse


class CompileError(Exception):
    """A pipeline whose steps do not fit each other."""


class LegalizationError(Exception):
    """A pipeline whose first step does not say what it begins with."""


class TensorType(enum.Enum):
    """What a step takes or gives."""

    LOGITS = "logits"
    PROBS = "probs"
    INDICES = "indices"

    def __str__(self):
        return self.value

    def __repr__(self):
        return f"{type(self).__name__}.{self.name}"


@dataclasses.dataclass
class TaggedTensor:
    """A tensor, and what it is."""

    data: torch.Tensor
    type: TensorType

    @staticmethod
    def logits(t):
        return TaggedTensor(t, TensorType.LOGITS)

    @staticmethod
    def probs(t):
        return TaggedTensor(t, TensorType.PROBS)

    @staticmethod
    def indices(t):
        return TaggedTensor(t, TensorType.INDICES)


class LogitsProcessor:
    """A step. Its parameters are given here, or when the pipeline is called, where they count more."""

    takes = TensorType.LOGITS, TensorType.PROBS
    needs, may = (), ()  # names of parameters

    def __init__(self, **params):
        for name in params:
            if name not in (*self.needs, *self.may):
                raise ValueError(f"{type(self).__name__}: {name} is {found(params[name])}; accepted: "
                                 f"{', '.join((*self.needs, *self.may)) or 'no parameters'}")
        self.params = params

    def gives(self, kind):
        """Returns what the step makes of a kind."""
        return kind

    def values(self, given):
        """Returns the parameters of a call."""
        values = self.params | {name: given[name] for name in (*self.needs, *self.may) if name in given}
        for name in self.needs:
            if values.get(name) is None:
                raise ValueError(f"{type(self).__name__}: {name} is missing; needed here or in the call")
        return values


class Temperature(LogitsProcessor):
    """logits / temperature, a number or a tensor [rows]."""

    takes, needs = (TensorType.LOGITS,), ("temperature",)

    def apply(self, x, kind, given):
        temperature = self.values(given)["temperature"]
        if not isinstance(temperature, torch.Tensor) and not temperature > 0:
            raise ValueError(f"Temperature: temperature is {found(temperature)}; accepted: above 0")
        return x / (temperature[:, None] if isinstance(temperature, torch.Tensor) and temperature.ndim else temperature)


class Softmax(LogitsProcessor):
    """Probabilities of logits, in f32."""

    takes = TensorType.LOGITS,

    def __init__(self, enable_pdl=None, **params):
        super().__init__(**params)
        check_flags("Softmax", enable_pdl=enable_pdl)

    def gives(self, kind):
        return TensorType.PROBS

    def apply(self, x, kind, given):
        return sampling.softmax(x)


class TopK(LogitsProcessor):
    """The top_k largest, a number or a tensor [rows]. joint_topk_topp: a TopP behind it counts among all, not among these."""

    needs = "top_k",

    def __init__(self, joint_topk_topp=False, **params):
        super().__init__(**params)
        self.joint_topk_topp = flag("TopK", "joint_topk_topp", joint_topk_topp)

    def apply(self, x, kind, given):
        choose = sampling.top_k_mask_logits if kind == TensorType.LOGITS else sampling.top_k_renorm_probs
        return choose(x, self.values(given)["top_k"])


class TopP(LogitsProcessor):
    """The probabilities above which there is less than top_p."""

    takes, needs, may = (TensorType.PROBS,), ("top_p",), ("is_deterministic",)

    def apply(self, x, kind, given):
        return sampling.top_p_renorm_probs(x, **self.values(given))


class MinP(LogitsProcessor):
    """The probabilities of at least min_p times the largest."""

    takes, needs = (TensorType.PROBS,), ("min_p",)

    def apply(self, x, kind, given):
        min_p = self.values(given)["min_p"]
        least = x.amax(-1, keepdim=True) * (min_p[:, None] if isinstance(min_p, torch.Tensor) and min_p.ndim else min_p)
        kept = torch.where(x >= least, x, 0).float()
        return kept / kept.sum(-1, keepdim=True)


class Sample(LogitsProcessor):
    """A token for each row, or for each entry of indices."""

    may = "indices", "generator", "seed", "offset", "check_nan"

    def __init__(self, deterministic=True, **params):
        super().__init__(**params)
        self.deterministic = flag("Sample", "deterministic", deterministic)

    def gives(self, kind):
        return TensorType.INDICES

    def apply(self, x, kind, given):
        sample = sampling.sampling_from_logits if kind == TensorType.LOGITS else sampling.sampling_from_probs
        return sample(x, deterministic=self.deterministic, **self.values(given))


# ---- several steps in one call

class _Fused:
    """Steps that one function computes, which has their parameters' names."""

    def __init__(self, function, *steps, **options):
        self.function, self.steps, self.options = function, steps, options

    def apply(self, x, kind, given):
        values = {name: value for step in self.steps for name, value in step.values(given).items()}
        for step in self.steps:
            if isinstance(step, Sample):
                values["deterministic"] = step.deterministic
        check_flags("TopP", is_deterministic=values.pop("is_deterministic", False))  # says how TopP alone is computed
        return self.function(x, **values, **self.options)


def _fused(kind, steps):
    """Returns the call for the first steps, and how many it takes; None and 1 if there is none."""
    names = [type(step) for step in steps]
    if names[:4] == [Softmax, TopK, TopP, Sample] and steps[1].joint_topk_topp:
        return _Fused(sampling.top_k_top_p_sampling_from_logits, *steps[:4], filter_apply_order="joint"), 4
    if names[:2] == [Temperature, Softmax]:
        return _Fused(sampling.softmax, *steps[:2]), 2
    if kind == TensorType.PROBS and names[:3] == [TopK, TopP, Sample]:
        order = "joint" if steps[0].joint_topk_topp else "top_k_first"
        return _Fused(sampling.top_k_top_p_sampling_from_probs, *steps[:3], filter_apply_order=order), 3
    alone = {TopK: sampling.top_k_sampling_from_probs, TopP: sampling.top_p_sampling_from_probs, MinP: sampling.min_p_sampling_from_probs}
    if kind == TensorType.PROBS and names[1:2] == [Sample] and names[0] in alone:
        return _Fused(alone[names[0]], *steps[:2]), 2
    return None, 1


def _checked(processors, kind):
    """Returns the calls of a pipeline; raises for steps that do not fit."""
    if sum(isinstance(step, Softmax) for step in processors) > 1:
        raise CompileError("more than one Softmax; accepted: one")
    calls, kinds = [], [kind]
    for step in processors:
        name = type(step).__name__
        if kinds[-1] == TensorType.INDICES:
            raise CompileError(f"{name} comes behind tokens; accepted: nothing")
        if kinds[-1] not in step.takes:
            raise CompileError(f"{name} gets {kinds[-1]}; accepted: {', '.join(map(str, step.takes))}")
        kinds.append(step.gives(kinds[-1]))
    at = 0
    while at < len(processors):
        call, taken = _fused(kinds[at], processors[at:])
        calls.append((processors[at] if call is None else call, kinds[at]))
        at += taken
    return calls


class LogitsPipe:
    """Steps from logits or probabilities to probabilities or tokens. pipe(x, temperature=.., top_k=.., ...) returns a tensor."""

    def __init__(self, processors, compile=True, input_type=None, custom_fusion_rules=None, custom_validity_checks=None):
        flag("LogitsPipe", "compile", compile)
        refuse("LogitsPipe", custom_fusion_rules=custom_fusion_rules)
        self.processors = list(processors)
        if not self.processors:
            raise ValueError("LogitsPipe: processors is empty; accepted: one or more")
        for step in self.processors:
            if type(step) not in (Temperature, Softmax, TopK, TopP, MinP, Sample):
                raise NotImplementedError(f"LogitsPipe: processors has {found(step)}; accepted: Temperature, Softmax, TopK, TopP, MinP, Sample")
        try:
            self._initial_type = self._first(input_type)
            self._calls = _checked(self.processors, self._initial_type)
            for check in custom_validity_checks or ():
                check(self.processors)
        except (CompileError, LegalizationError) as error:
            raise ValueError(f"LogitsPipe: {error}") from error

    def _first(self, input_type):
        takes = self.processors[0].takes
        if input_type is not None and not isinstance(input_type, TensorType):
            raise LegalizationError(f"input_type is {found(input_type)}; accepted: a TensorType, None")
        if input_type is None and len(takes) > 1:
            raise LegalizationError(f"input_type is None; needed as {type(self.processors[0]).__name__} takes both")
        return takes[0] if input_type is None else input_type

    @property
    def initial_type(self):
        """What the pipeline begins with."""
        return self._initial_type

    def compile(self, custom_fusion_rules=None, custom_validity_checks=None):
        """Checks the steps by custom_validity_checks; there is nothing else to do."""
        refuse("LogitsPipe", custom_fusion_rules=custom_fusion_rules)
        for check in custom_validity_checks or ():
            check(self.processors)

    def __repr__(self):
        return f"LogitsPipe([{' -> '.join(type(step).__name__ for step in self.processors)}])"

    def __call__(self, x, **parameters):
        known = {name for step in self.processors for name in (*step.needs, *step.may)}
        for name in parameters:
            if name not in known:
                raise ValueError(f"LogitsPipe: {name} is {found(parameters[name])}; accepted: {', '.join(sorted(known)) or 'no parameters'}")
        kind = x.type if isinstance(x, TaggedTensor) else self._initial_type
        if kind != self._initial_type:
            raise ValueError(f"LogitsPipe: x is {kind}; accepted: {self._initial_type}")
        x = x.data if isinstance(x, TaggedTensor) else x
        for call, has in self._calls:
            x = call.apply(x, has, parameters)
        return x
