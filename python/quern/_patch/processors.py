# SPDX-License-Identifier: Apache-2.0
"""Attention processors, diffusers' own hook: what a processor of quern's has of the one in whose place it is."""

import copy
import importlib

from . import Unfit

# Of SD3's, and Wan's of attention to the text, the head norms are modules, and nothing is rotated.
_ALL_BY_MODULES = ("JointAttnProcessor2_0", "WanAttnProcessor")


class Processor:
    """A processor in another one's place. The original holds the options that diffusers sets on a processor, such as
    _attention_backend.

    functions  {attribute: the name, in the original's module, of the function that it holds}
    """
    functions = {}

    def __init__(self, run, original):
        module = importlib.import_module(type(original).__module__)
        found = {attribute: getattr(module, name, None) for attribute, name in self.functions.items()}
        if None in found.values():
            raise Unfit(f"this diffusers' {type(original).__name__} is made of other functions than the one quern knows")
        self.__dict__.update(_run=run, _original=original, **found)

    def __getattr__(self, name):
        return getattr(self.__dict__["_original"], name)

    def __setattr__(self, name, value):
        setattr(self._original, name, value)

    def __deepcopy__(self, memo):
        return type(self)(self._run, copy.deepcopy(self._original, memo))


def is_attention(module):
    return hasattr(module, "processor") and hasattr(module, "set_processor") and hasattr(module, "norm_q")


def has(name):
    """Returns whether a module is attention by the processor of this name."""
    return lambda module: is_attention(module) and type(module.processor).__name__ == name


def is_other(module):
    return is_attention(module) and type(module.processor).__name__ not in _ALL_BY_MODULES


def other(run, module):
    raise Unfit("of attention processors quern knows FluxAttnProcessor, JointAttnProcessor2_0 and WanAttnProcessor, and not "
                + type(module.processor).__name__)
