# SPDX-License-Identifier: Apache-2.0
"""Which plain linear layers quern multiplies faster than PyTorch: linears.json, which bench/peer_linear.py makes of what it
measured."""

import functools
import json
import pathlib

FILE = pathlib.Path(__file__).with_name("linears.json")
_TOP = {"command": str, "device": str, "rows": list}
_ROW = {"n": int, "k": int, "bias": bool, "first_m": int, "last_m": int, "ratio": float}


class BadTable(ValueError):
    """A table that is damaged or has what this version does not know."""


def _check(where, found, accepted):
    if not isinstance(found, dict) or found.keys() != accepted.keys():
        names = ", ".join(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise BadTable(f"table of linear layers: {where} has {names}; accepted: {', '.join(accepted)}")
    for name, kind in accepted.items():
        if type(found[name]) is not kind:
            raise BadTable(f"table of linear layers: {where}: {name} is {found[name]!r}; accepted: {kind.__name__}")


def _check_row(where, row):
    _check(where, row, _ROW)
    if min(row["n"], row["k"], row["first_m"]) < 1 or row["last_m"] < row["first_m"]:
        raise BadTable(f"table of linear layers: {where}: n {row['n']}, k {row['k']}, m {row['first_m']} to {row['last_m']}; "
                       "accepted: 1 or above, the first m not above the last")
    if not row["ratio"] > 1:
        raise BadTable(f"table of linear layers: {where}: ratio is {row['ratio']}; accepted: above 1, where quern is faster")


def read(text):
    """Returns {(device, n, k, has bias): ((first m, last m), ...)}. Raises BadTable."""
    try:
        table = json.loads(text)
    except ValueError as error:
        raise BadTable(f"table of linear layers: no JSON: {error}") from error
    _check("the table", table, _TOP)
    found = {}
    for number, row in enumerate(table["rows"]):
        _check_row(f"row {number}", row)
        key, ranges = (table["device"], row["n"], row["k"], row["bias"]), (row["first_m"], row["last_m"])
        if key in found and found[key][-1][1] >= ranges[0]:
            raise BadTable(f"table of linear layers: row {number}: m {ranges[0]} to {ranges[1]} after {found[key][-1]} "
                           "of the same layer; accepted: ranges that rise and do not overlap")
        found[key] = (*found.get(key, ()), ranges)
    return found


@functools.cache
def shipped():
    return read(FILE.read_text(encoding="utf-8"))
