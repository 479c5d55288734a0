# SPDX-License-Identifier: Apache-2.0
"""Tells torch.compile that another attention than before stands under scaled_dot_product_attention.

Three caches keep what stood there before: the operator's own cache of the kernel that a tracer gets; the graphs of this
process; and the graphs on disk, whose keys contain PyTorch's operator alone. PyTorch empties none of them when a kernel
is registered.
"""

import logging
import sys

import torch
import torch.compiler.config

_logger = logging.getLogger("quern.torch")
_ATEN = torch.ops.aten.scaled_dot_product_attention.default
_MARK = "_quern_attention"  # an attribute of a graph's guards: what the graph was made with
_NAMED = 8  # how many functions a log line names
_now = ""  # what graphs are made with: quern's options as a text; "": PyTorch's attention alone


def _unguarded_graphs():
    """Yields (code, guards) of each graph of this process that has no guard of ours yet."""
    dynamo = sys.modules.get("torch._dynamo.convert_frame")  # not there before the first torch.compile
    for reference in list(dynamo.input_codes.seen) if dynamo else ():
        code = reference()
        entries = [] if code is None else torch._dynamo.eval_frame._debug_get_cache_entry_list(code)
        for entry in entries:
            if not hasattr(entry.guard_manager, _MARK):
                yield code, entry.guard_manager


def _guard(guards, made_with):
    """Makes a graph run only while attention is what the graph was made with; at other times the graph is passed over,
    and kept."""
    parts = [f"quern's attention is {made_with or 'off'}"]
    add, holds = guards.root.add_lambda_guard, lambda _: _now == made_with
    try:
        add(holds, parts, None)
    except TypeError:  # earlier PyTorch takes no stack
        add(holds, parts)
    setattr(guards, _MARK, made_with)


def _name(code):
    return f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"


def _guard_graphs():
    """Guards the graphs made with today's attention that had no guard yet. Returns their functions."""
    names = []
    for code, guards in list(_unguarded_graphs()):
        _guard(guards, _now)
        names.append(_name(code))
    return list(dict.fromkeys(names))


def _put_tag(text):
    """Makes text a part of the keys of graphs on disk. The value is forced because only forced values reach all
    threads. Earlier PyTorch has no tag."""
    entry = torch.compiler.config._config.get("cache_key_tag")
    if entry is None:
        return
    if not hasattr(entry, _MARK):
        setattr(entry, _MARK, entry.env_value_force)
    entry.env_value_force = getattr(entry, _MARK)
    if text:
        entry.env_value_force = f"{torch.compiler.config.cache_key_tag} quern {text}"


def switch(options):
    """Makes attention quern's with these options, a text, or with "" PyTorch's alone. Graphs made with other options
    stay for the time when these return; their functions are compiled again when they are next called."""
    global _now
    names = _guard_graphs()
    if options and names and options != _now:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        _logger.warning("compiled before enable(), and compiled again when next called: %s%s", ", ".join(names[:_NAMED]), more)
    _ATEN._dispatch_cache.clear()
    _put_tag(options)
    _now = options
