# SPDX-License-Identifier: Apache-2.0
"""record.py PYPROJECT FOLDER: writes the record by which engines find plug-ins, as pip makes it of pyproject.toml, to a staged package."""

import pathlib
import sys
import tomllib

project = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())["project"]
record = pathlib.Path(sys.argv[2], f"quern-{project['version']}.dist-info")
record.mkdir()
(record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: quern\nVersion: {project['version']}\n")
groups = project["entry-points"].items()
(record / "entry_points.txt").write_text("".join(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in of.items()) for group, of in groups))
