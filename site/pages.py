# SPDX-License-Identifier: Apache-2.0
"""Puts README.md, NEWS.md, docs/*.md, the command's help and views of files of the tree into the folder that Sphinx reads."""

import posixpath
import re
import shutil
import subprocess

from comments import code, title

LINK = re.compile(r"\[([^]\[]*)\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")
NAME = re.compile(r"(?<![\[`])`(qn_\w+)(?:\(\))?`(?!`)")
FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)
LANGUAGES = {".c": "c", ".h": "c", ".def": "c", ".py": "python", ".sh": "bash", ".cmake": "cmake", ".json": "json"}


class Pages:
    """The pages made so far. A link of theirs to a file of the tree makes a view of that file."""

    def __init__(self, top, source, roles):
        self.top, self.source, self.roles = top, source, roles
        self.names = {"README.md": "index.md", "NEWS.md": "news.md", "docs/quern.1": "command.rst"}
        self.names |= {f"docs/{path.name}": path.name for path in (top / "docs").glob("*.md")}

    def target(self, path):
        """Returns the page, or copied picture, that stands for a file of the tree."""
        if path in self.names:
            return self.names[path]
        if path.endswith((".svg", ".png")):
            shutil.copy(self.top / path, self.source)
            return posixpath.basename(path)
        return self.view(path)

    def view(self, path):
        """Writes a page that shows a file."""
        page = self.source / f"tree/{path}.rst"
        page.parent.mkdir(parents=True, exist_ok=True)
        language = LANGUAGES.get((self.top / path).suffix, "none")
        page.write_text(":orphan:\n:nosearch:\n\n" + title(path) + "\n" + code((self.top / path).read_text(), language))
        return f"/tree/{path}.rst"

    def linked(self, path, text):
        """Returns a page's text with links to where its files are in the site."""
        def replace(match):
            text, link, heading = match.groups()
            target = self.target(posixpath.normpath(posixpath.join(posixpath.dirname(path), link)))
            text = "" if text == link and target.endswith(".md") else text  # a file's name becomes its page's title
            return f"[{text}]({target}{heading or ''})"
        return "".join(part if part.startswith("```") else self.named(LINK.sub(replace, part)) for part in FENCE.split(text))

    def named(self, text):
        """Returns a text in which the names of C functions and types are links."""
        return NAME.sub(lambda match: f"{{{self.roles[match[1]]}}}`{match[1]}`" if match[1] in self.roles else match[0], text)

    def write(self, contents):
        """Writes the front page, which ends with the table of contents, and all pages of docs/."""
        for path, name in self.names.items():
            if path.endswith(".md"):
                text = self.linked(path, (self.top / path).read_text())
                (self.source / name).write_text(text + (f"\n{contents}" if name == "index.md" else ""))


def write_command(quern, source):
    """Writes the command's help, all of it, as a page."""
    def help_of(*command):
        return subprocess.run([quern, "help", *command], capture_output=True, text=True, check=True).stdout
    general = help_of()
    commands = re.findall(r"^  (\w+)  ", general.partition("Commands:")[2].partition("\n\n")[0], re.M)
    parts = [title("The command quern"), code(general, "none")]
    for command in commands:
        if command != "help":
            parts += [title(f"quern {command}", "-"), code(help_of(command), "none")]
    (source / "command.rst").write_text("\n".join(parts))
