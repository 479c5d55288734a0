# SPDX-License-Identifier: Apache-2.0
"""Turns the comments of headers and the docstrings of Python into reStructuredText.

Both have one form: paragraphs, fields ("name  text", "Errors: text") whose text goes on indented, indented formulas, and
examples that begin with >>>.
"""

import re
import textwrap

FIELD = re.compile(r" ?(?:(\S.*?)  +|([A-Z]\w*:) )(\S.*)$")
WORD = re.compile(r"`([^`]+)`|\b((?:qn_|QN_|QUERN_)\w+)(?:\(\))?|([\\*`|_])")


def inline(text, roles={}):
    """Returns the text with its names as links or code and every other sign as it stands. roles: name -> role."""
    def replace(match):
        code, name, sign = match.groups()
        if sign:
            return "\\" + sign
        word = code or name
        return rf"\ :{roles[word]}:`{word}`\ " if word in roles else rf"\ ``{word}``\ "
    return WORD.sub(replace, text)


def blocks(text):
    """Yields the parts of a comment: [kind, name, lines], where kind is text, field, formula or example."""
    block = None
    for number, line in enumerate(text.splitlines()):
        indent, field = len(line) - len(line.lstrip()), FIELD.match(line)
        if not line.strip():
            kind = ""
        elif line.startswith(">>>") or (block and block[0] == "example"):
            kind = "example"
        elif indent > 1:
            kind = block[0] if block else "formula"
        else:
            kind = "field" if number and field and not line.lstrip().startswith("- ") else "text"
        goes_on = block and kind == block[0] and (kind != "field" or indent > 1) and not line.lstrip().startswith("- ")
        if block and not goes_on:
            yield block
            block = None
        if goes_on:
            block[2].append(line)
        elif kind:
            block = [kind, (field[1] or field[2]) if kind == "field" else "", [field[3] if kind == "field" else line]]
    if block:
        yield block


def field_text(lines, roles):
    """Returns a field's lines as one paragraph; fields inside it begin lines of their own."""
    parts = [""]
    for line in lines:
        nested = FIELD.match(line.strip()) if line.startswith(" ") else None
        if nested and nested[1]:
            parts.append("")
        parts[-1] += " " + line.strip()
    parts = [inline(part.strip(), roles) for part in parts if part]
    return parts[0] if len(parts) == 1 else "\n".join(f"| {part}" for part in parts)


def fields(rows, roles={}):
    """Returns fields as a table of two columns."""
    lines = [".. list-table::", "   :class: fields", ""]
    for name, text in rows:
        head = f"**{name}**" if name.endswith(":") else f"``{name}``"
        lines += [f"   * - {head}", textwrap.indent(field_text(text, roles), "       ").replace("       ", "     - ", 1)]
    return "\n".join(lines)


def rst(text, roles={}):
    """Returns a comment as reStructuredText."""
    parts, rows = [], []
    for kind, name, lines in [*blocks(text), ("end", "", [])]:
        if kind == "field":
            rows.append((name, lines))
            continue
        if rows:
            parts.append(fields(rows, roles))
            rows = []
        if kind == "text":
            parts.append(inline(" ".join(line.strip() for line in lines), roles))
        elif kind != "end":
            parts.append(code(textwrap.dedent("\n".join(lines)), "pycon" if kind == "example" else "none"))
    return "\n\n".join(parts) + "\n"


def code(text, language):
    return f".. code-block:: {language}\n\n" + textwrap.indent(text.rstrip(), "   ") + "\n"


def title(text, line="="):
    return f"{text}\n{line * len(text)}\n"
