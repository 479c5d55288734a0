# SPDX-License-Identifier: Apache-2.0
"""Writes pages of the Python package's functions and classes, out of the sources: signatures and docstrings."""

import ast
import textwrap

from comments import rst, title

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


def source_of(package, module):
    path = package / f"{module}.py"
    return path if path.exists() else package / module / "__init__.py"


def modules_of(package):
    """Returns module -> [(public name, node)] of a package's public functions and classes that have docstrings."""
    found = {}
    for module, name, public in imported(package):
        path = source_of(package, module)
        node = functions_in(path).get(name) if path.exists() else None
        if node and not public.startswith("_"):
            found.setdefault(module, []).append((public, node))
    return found


def stubs_of(package):
    """Returns [(name, node)] of what a package's stub names: its signatures and attributes, with the docstrings of the sources."""
    sources = {name: node for module in modules_of(package) for name, node in functions_in(source_of(package, module)).items()}
    nodes = [(name, sources[name], node) for name, node in functions_in(package / "__init__.pyi").items()]
    for _, source, node in nodes:
        if isinstance(node, ast.FunctionDef):
            source.args, source.returns = node.args, node.returns
        else:
            source.body[1:1] = [member for member in node.body if isinstance(member, ast.AnnAssign)]
    return [(name, source) for name, source, _ in nodes]


def parts_of(top):
    """Yields (package, page, file whose docstring heads the page, [(name, node)]) of each module of quern, and of quern.torch."""
    package = top / "python/quern"
    for module, nodes in modules_of(package).items():
        yield "quern", module.strip("_").replace("init", "package"), source_of(package, module), nodes
    yield "quern.torch", "torch", package / "torch/__init__.py", stubs_of(package / "torch")


def page(package, name, path, nodes):
    text = rst(ast.get_docstring(ast.parse(path.read_text())) or "")
    return "\n".join([title(f"quern: {name}" if package == "quern" else package), f".. py:currentmodule:: {package}\n", text,
                      *(item_rst(*pair) for pair in nodes)])


def write(top, source):
    """Writes the pages of all parts into source/py, and source/py/index.rst."""
    (source / "py").mkdir()
    rows, names = [], []
    for package, name, path, nodes in parts_of(top):
        (source / f"py/{name}.rst").write_text(page(package, name, path, nodes))
        names.append(name)
        rows.append(f"   * - :doc:`{name}`\n     - " + ", ".join(f":py:obj:`{of} <{package}.{of}>`" for of, _ in nodes))
    tree = "\n".join(f"   {name}" for name in names)
    (source / "py/index.rst").write_text(
        title("Python functions") + "\n``import quern`` has all but ``quern.torch``; :doc:`/python` tells how to install and call them.\n\n"
        ".. list-table::\n   :header-rows: 1\n\n   * - part\n     - functions and classes\n" + "\n".join(rows)
        + f"\n\n.. toctree::\n   :hidden:\n\n{tree}\n")
