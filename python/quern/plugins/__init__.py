# SPDX-License-Identifier: Apache-2.0
"""quern's ops inside serving engines, through the engines' own ways of extension; docs/engines.md is the users' page.

The entry points are in quern_engines. A plugin registers classes and functions with its engine, and prints one table: each op
of the engine with quern's kernel for it, or why the engine's own op stays.
"""
