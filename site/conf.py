# SPDX-License-Identifier: Apache-2.0
"""Sphinx's configuration of the site; site/build.py writes the pages that it reads."""

import os

project = "quern"
author = "the quern authors"
version = release = os.environ["QUERN_VERSION"]
extensions = ["myst_parser"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
myst_heading_anchors = 6
highlight_language = "none"
smartquotes = False  # they would turn --help into a dash
html_theme = "furo"
html_title = f"quern {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("catalogue.js", {"defer": "defer"})]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
templates_path = []
maximum_signature_line_length = 90
toc_object_entries = True
toc_object_entries_show_parents = "hide"
add_module_names = False
