#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the manual with the tree: README.md and docs/*.md must name no link, heading, file, C function or kernel that does
not exist, docs/kernels*.md must name every kernel, and each public function must have a comment.

    python tools/check_docs.py      exits with 1 after printing what is wrong
"""

import itertools
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
FILES = set(subprocess.check_output(["git", "ls-files"], cwd=TOP, text=True).split())
FOLDERS = {str(parent) for file in FILES for parent in pathlib.PurePath(file).parents}
NAMES = {pathlib.PurePath(file).name for file in FILES}
PAGES = ["README.md", *sorted(f for f in FILES if re.fullmatch(r"docs/\w+\.md", f))]
SUFFIXES = ".c .h .py .def .sh .json .cmake .hip .svg .sed".split()
# Names that stand for others, suffixes, and files outside this tree.
OTHERS = re.compile(r"NAME|FAMILY|VERSION|^_\w+\.c$|^(config|quern-files|\S*index)\.json$|^gpuintrin\.h$|^test/mockgpu/")


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def bad_links(page, text, texts):
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, heading = target.partition("#")
        file = str((TOP / page).parent.joinpath(path).resolve().relative_to(TOP)) if path else page
        if target.startswith("http"):
            continue
        if file not in FILES:
            yield f"link to {target}: no such file"
        elif heading and heading not in map(slug, re.findall(r"^#+ (.*)$", texts[file], re.M)):
            yield f"link to {target}: no such heading"


def bad_names(text, functions, kernels):
    families = {kernel.partition(".")[0] for kernel in kernels}
    for code in set(re.findall(r"`([^`\n]+)`", text)):
        for function in re.findall(r"\bqn_[a-z0-9_]+(?![\w*…])", code):
            if function not in functions:
                yield f"`{code}`: there is no {function}"
        word = code.removesuffix("/")
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)*", word) and word.endswith(tuple(SUFFIXES)) and not OTHERS.search(word):
            if not any(file == word or file.endswith("/" + word) for file in FILES) and word not in NAMES:
                yield f"`{code}`: no such file"
        elif code.endswith("/") and word.split("/")[0] in FOLDERS and word not in FOLDERS and not OTHERS.search(word):
            yield f"`{code}`: no such folder"
        elif re.fullmatch(r"[a-z_0-9]+\.[a-z_0-9]+", code) and code.partition(".")[0] in families and code not in kernels:
            yield f"`{code}`: no such kernel"


def main():
    texts = {page: (TOP / page).read_text() for page in PAGES}
    headers = "".join((TOP / f).read_text() for f in FILES if f.startswith(("include/", "runtime/", "sim/")) and f.endswith(".h"))
    functions = set(re.findall(r"\bqn_[a-z0-9_]+", headers))
    tables = "".join((TOP / f).read_text() for f in FILES if f.endswith("/variants.def"))
    kernels = {".".join(pair) for pair in re.findall(r"^QN_VARIANT\((\w+),\s*(\w+),", tables, re.M)}
    found = [f"{page}: {what}" for page, text in texts.items()
             for what in itertools.chain(bad_links(page, text, texts), bad_names(text, functions, kernels))]
    named = "".join(text for page, text in texts.items() if page.startswith("docs/kernels"))
    found += [f"docs/kernels*.md: `{kernel}` is missing" for kernel in sorted(kernels) if f"`{kernel}`" not in named]
    found += [f"{file}: {line[:60]}… has no comment" for file in sorted(FILES) if file.startswith("include/")
              for before, line in itertools.pairwise((TOP / file).read_text().splitlines())
              if line.startswith("QN_API") and not before.endswith("*/")]
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
