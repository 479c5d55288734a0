# SPDX-License-Identifier: Apache-2.0
"""Writes pages of the Python package's functions and classes, out of the sources: signatures and docstrings."""

import ast
import textwrap

from comments import inline, rst, title

def functions_in(path):
    """Returns the functions and classes of a module by name."""
    tree = ast.parse(path.read_text())
    return {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def imported(package):
    """Yields (module, its name, public name) of what a package imports for its users, in its order, and what it defines itself."""
    for node in ast.walk(ast.parse((package / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            yield from ((node.module, name.name, name.asname or name.name) for name in node.names)
        elif isinstance(node, ast.FunctionDef):
            yield "__init__", node.name, node.name


def signature(node):
    return f"({ast.unparse(node.args)})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")


def described(node):
    return rst(ast.get_docstring(node) or "")


def class_rst(name, node):
    """Returns a class: its text, and its public methods, properties and attributes that have a docstring or a type."""
    parts = [described(node)]
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and not member.target.id.startswith("_"):
            parts.append(f".. py:attribute:: {member.target.id}\n   :type: {ast.unparse(member.annotation)}\n")
        elif isinstance(member, ast.FunctionDef) and not member.name.startswith("_") and ast.get_docstring(member):
            is_property = any(ast.unparse(mark) == "property" for mark in member.decorator_list)
            member.args.args = member.args.args[1:]
            head = f".. py:property:: {member.name}" if is_property else f".. py:method:: {member.name}{signature(member)}"
            parts.append(f"{head}\n\n" + textwrap.indent(described(member), "   "))
    return f".. py:class:: {name}\n\n" + textwrap.indent("\n".join(parts), "   ")


def item_rst(name, node):
    if isinstance(node, ast.ClassDef):
        return class_rst(name, node)
    return f".. py:function:: {name}{signature(node)}\n\n" + textwrap.indent(described(node), "   ")


def modules_of(package):
    """Returns module -> [(public name, node)] of a package's public functions and classes that have docstrings."""
    found = {}
    for module, name, public in imported(package):
        path = package / f"{module}.py" if (package / f"{module}.py").exists() else package / module / "__init__.py"
        node = functions_in(path).get(name) if path.exists() else None
        if node and not public.startswith("_"):
            found.setdefault(module, []).append((public, node))
    return found


def page(package, heading, module_path, nodes):
    text = rst(ast.get_docstring(ast.parse(module_path.read_text())) or "")
    return "\n".join([title(heading), f".. py:currentmodule:: {package}\n", text, *(item_rst(*pair) for pair in nodes)])


def source_of(folder, module):
    path = folder / f"{module}.py"
    return path if path.exists() else folder / module / "__init__.py"


def write(top, source):
    """Writes a page for each module of quern and one for quern.torch into source/py, and source/py/index.rst."""
    (source / "py").mkdir()
    rows, pages = [], []
    for package, folder in (("quern", top / "python/quern"), ("quern.torch", top / "python/quern/torch")):
        modules = modules_of(folder)
        if package == "quern.torch":
            modules = {"__init__": [pair for pairs in modules.values() for pair in pairs]}
        for module, nodes in modules.items():
            short = module.strip("_").replace("init", "") or package.replace("quern.", "").replace("quern", "package")
            (source / f"py/{short}.rst").write_text(page(package, f"{package}: {short}" if package == "quern" else package,
                                                         source_of(folder, module), nodes))
            pages.append(short)
            rows.append(f"   * - :doc:`{short}`\n     - " + ", ".join(f":py:obj:`{name} <{package}.{name}>`" for name, _ in nodes))
    tree = "\n".join(f"   {name}" for name in pages)
    (source / "py/index.rst").write_text(
        title("Python functions") + "\n" + inline("import quern has all but quern.torch; ")
        + ":doc:`/python` tells how to install and call them.\n\n.. list-table::\n   :header-rows: 1\n\n"
        "   * - part\n     - functions and classes\n" + "\n".join(rows) + f"\n\n.. toctree::\n   :hidden:\n\n{tree}\n")
