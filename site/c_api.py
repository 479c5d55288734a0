# SPDX-License-Identifier: Apache-2.0
"""Writes a page for each public header, out of its comments and declarations."""

import re
import textwrap

from comments import code, inline, rst, title

ITEM = re.compile(r"^(?:(?P<comment>/\*\*.*?\*/)\n)?"
                  r"(?P<declaration>(?:QN_API|typedef|enum)\b(?:[^;{]|\{[^}]*\})*;|#define QN_(?!API)[^\n]*)", re.M | re.S)


def comment_text(comment):
    """Returns a comment's text without its signs."""
    lines = comment.removeprefix("/** ").removesuffix("*/").rstrip().splitlines()
    return "\n".join([lines[0], *(re.sub(r"^ \* {0,2}", "", line) for line in lines[1:])])


def headers_of(top):
    """Returns name -> text of the public headers."""
    folder = top / "include/quern"
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.h"))}


def head_of(header):
    """Returns the comment at a header's head, without its licence."""
    lines = header.split("#ifndef")[0].splitlines()[1:]
    return "\n".join(re.sub("^// ?", "", line) for line in lines)


def items(header):
    """Yields (comment or None, declaration) of what a header declares."""
    body = header.split('extern "C" {\n#endif\n', 1)[-1]
    for match in ITEM.finditer(body):
        yield match["comment"], match["declaration"]


def name_of(declaration):
    """Returns (role, name) of what is declared; None for an enum without a name."""
    for role, pattern in (("macro", r"#define (QN_\w+)"), ("func", r"QN_API .*?\b(qn_\w+)\("), ("type", r"typedef .*\(\*(qn_\w+)\)"),
                          ("struct", r"typedef struct (qn_\w+) \{"), ("enum", r"typedef enum (qn_\w+) \{"),
                          ("type", r"typedef .*?(qn_\w+);")):
        if found := re.match(pattern, declaration, re.S):
            return role, found[1]
    return None


def roles_of(headers):
    """Returns the role of every public name."""
    named = (name_of(declaration) for text in headers.values() for _, declaration in items(text))
    return {name: f"c:{role}" for role, name in filter(None, named)}


def item_rst(comment, declaration, roles):
    named, text = name_of(declaration), rst(comment_text(comment), roles) if comment else ""
    if named is None:
        return text + "\n" + code(declaration, "c")
    role, name = named
    flat = " ".join(re.sub(r"^(QN_API|typedef)\b", "", declaration).rstrip(";").split())
    signature = flat if role == "func" or (role == "type" and "(*" in flat) else name
    body = code(declaration, "c") if role in ("struct", "enum", "macro") else ""
    directive = {"func": "function"}.get(role, role)
    return f".. c:{directive}:: {signature}\n\n" + textwrap.indent(f"{text}\n{body}", "   ") + "\n"


def page(name, header, roles):
    parts = [title(f"quern/{name}"), rst(head_of(header), roles), title("Declarations", "-")]
    if not list(items(header)):
        parts.pop()
    parts += [item_rst(comment, declaration, roles) for comment, declaration in items(header)]
    return "\n".join(parts)


def write(top, source):
    """Writes the pages of all headers into source/c, and source/c/index.rst."""
    headers = headers_of(top)
    roles = roles_of(headers)
    rows = []
    for name, text in headers.items():
        path = source / "c" / f"{name}.rst"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(name, text, roles))
        functions = [found[1] for _, declaration in items(text) if (found := name_of(declaration)) and found[0] == "func"]
        rows.append(f"   * - :doc:`{name} </c/{name}>`\n     - {inline(' '.join(functions), roles) or 'none'}")
    tree = "\n".join(f"   {name}" for name in headers)
    (source / "c/index.rst").write_text(
        title("C functions") + "\nA program includes ``quern/quern.h``, which includes all but ``compat/``. "
        ":ref:`genindex` has every name.\n\n.. list-table::\n   :header-rows: 1\n\n   * - header\n     - functions\n"
        + "\n".join(rows) + f"\n\n.. toctree::\n   :hidden:\n\n{tree}\n")
