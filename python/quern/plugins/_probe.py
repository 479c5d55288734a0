# SPDX-License-Identifier: Apache-2.0
"""Which kernel an op gets on a target: the op runs once, small, on a device of the target.

Engines start processes after their plugins were loaded, and a process that has opened a GPU cannot be forked. AMD's GPUs are
therefore asked through the simulated ones, where the choice of a kernel is the same.
"""

import torch

from .. import _device, _tensor, last_kernel

UNKNOWN = "told by QUERN_LOG=kernel at its first call"


class Probe:
    """Runs ops on a device and tells their kernels."""

    def __init__(self, spec):
        """spec  "cpu", "sim:gfx942"; None: no device can be asked now"""
        try:
            self._device = None if spec is None else _device.device(spec)
        except (LookupError, RuntimeError):
            self._device = None

    @property
    def is_open(self):
        return self._device is not None

    def tensor(self, x):
        return x if self._device.spec == "cpu" else _tensor.to(x, self._device)

    def kernel(self, function, *arguments, **options):
        """Returns the kernel's name, or UNKNOWN. Raises what the function raises where it has no kernel."""
        if self._device is None:
            return UNKNOWN
        there = [self.tensor(x) if isinstance(x, torch.Tensor) else x for x in arguments]
        function(*there, **{name: self.tensor(x) if isinstance(x, torch.Tensor) else x for name, x in options.items()})
        return last_kernel()
