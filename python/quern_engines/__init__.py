# SPDX-License-Identifier: Apache-2.0
"""Entry points that vLLM and SGLang load in each of their processes: one look at the environment, and nothing more unless it
asks for quern. They stand outside the package quern, whose import costs time."""

import os


def _is_on(switch):
    return os.environ.get(switch, "").lower() not in ("", "0", "false", "off", "no")  # as quern._env.is_set has it


def vllm() -> None:
    """Gives vLLM quern's ops, with QUERN_VLLM=1; group vllm.general_plugins."""
    if _is_on("QUERN_VLLM"):
        from quern.plugins import vllm as plugin
        plugin.register()


def sglang() -> None:
    """Gives SGLang quern's ops for language models, with QUERN_SGLANG=1; group sglang.srt.plugins."""
    if _is_on("QUERN_SGLANG"):
        from quern.plugins import sglang as plugin
        plugin.register()


def sglang_diffusion() -> None:
    """Gives SGLang quern's ops for diffusion, with QUERN_SGLANG=1; group sglang.multimodal_gen.plugins."""
    if _is_on("QUERN_SGLANG"):
        from quern.plugins import sglang as plugin
        plugin.register_diffusion()
