# SPDX-License-Identifier: Apache-2.0
"""What the runners of others' own tests share: the CPU in a GPU's place, which cases run, and what became of them."""
