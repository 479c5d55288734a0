# SPDX-License-Identifier: Apache-2.0
"""Stands for SGLang's compiled kernels, whose names its modules import. Nothing here may call them."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def absent(*_arguments, **_options):
        raise RuntimeError(f"sgl_kernel.{name} is not compiled here")

    return absent
