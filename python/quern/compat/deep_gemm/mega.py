# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's mixture of experts in one kernel over several GPUs, which is not here."""

from typing import Any

from ._absent import absent

_WHY = "DeepGEMM has it on SM100 alone, over several GPUs with symmetric memory, and quern serves no such chip"


class SymmBuffer:
    """Raises NotImplementedError when it is made."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        absent("SymmBuffer", _WHY)()


get_symm_buffer_for_mega_moe = absent("get_symm_buffer_for_mega_moe", _WHY)
transform_weights_for_mega_moe = absent("transform_weights_for_mega_moe", _WHY)
fp8_fp4_mega_moe = absent("fp8_fp4_mega_moe", _WHY)
bf16_mega_moe = absent("bf16_mega_moe", _WHY)
