# SPDX-License-Identifier: Apache-2.0
"""How the rows of experts' gates and ups lie in a weight."""

import enum


class GateMode(str, enum.Enum):
    """SEPARATED: all rows of the gate, then those of the up. INTERLEAVE: one of each in turn."""

    SEPARATED = "separated"
    MOCK_GATE_ONLY = "mock_gate_only"
    GATE_ONLY = "gate_only"
    INTERLEAVE = "interleave"
