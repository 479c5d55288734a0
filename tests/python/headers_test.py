# SPDX-License-Identifier: Apache-2.0
"""The package has every op of the C headers."""

import inspect
import os
import pathlib
import re

import quern

PUBLIC = {name for name in quern.__all__ if inspect.isfunction(getattr(quern, name))}


def test_every_op_of_the_headers_is_here():
    headers = pathlib.Path(os.environ["QUERN_SOURCE_DIR"]) / "include/quern"
    text = "".join(path.read_text() for path in headers.glob("*.h"))
    ops = set(re.findall(r"QN_API qn_status qn_(\w+)\(\s*qn_stream \*stream\b", text)) - {"stream_sync"}
    assert len(ops) > 40 and ops == set(quern._ops.TABLE)
    assert ops - {"copy"} <= PUBLIC and callable(quern.to)  # qn_copy is what `to` calls
