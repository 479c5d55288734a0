# SPDX-License-Identifier: Apache-2.0
"""Names of SGLang's compiled kernels that describe number formats."""


class ScalarType:
    def __init__(self, name):
        self.name = name


class _Types:
    def __getattr__(self, name):
        return ScalarType(name)


scalar_types = _Types()
