# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Configuration of Sphinx, with which scripts/site.sh makes a site of this folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent
sys.path.insert(0, str(HERE))
from doxygen_filter import with_lists  # noqa: E402

HEADERS = ["onebit.h", "onebit_mpi.h", "onebit_nccl.h"]

project = "onebit"
copyright = "2026 The onebit authors"

extensions = ["breathe", "myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "onebit"
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]

# ---- Pages that read well in the source tree, too ----

LINK = re.compile(r"\[(?P<text>(?:[^][]|\[[^]]*\])*)\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)]*)?\)")
OTHERS = {SOURCE / "README.md": HERE / "readme.md", SOURCE / "python/README.md": HERE / "python-readme.md"}


def adapt(app, name, source):
    """A page for a file outside gets that file's text. Links to files that are no pages become the files' names."""
    folder = (HERE / name).parent
    page = folder
    stands_for = re.fullmatch(r"<!-- file: (\S+) -->\s*", source[0])
    if stands_for:
        file = (folder / stands_for[1]).resolve()
        source[0] = file.read_text(encoding="utf-8")
        folder = file.parent

    def link(found):
        target = (folder / found["path"]).resolve()
        target = OTHERS.get(target, target)
        if HERE in target.parents and target.is_file():
            return f"[{found['text']}]({os.path.relpath(target, page)}{found['anchor'] or ''})"
        if not target.exists():
            raise FileNotFoundError(f"{name}: {found[0]} leads nowhere")
        path = f"`{target.relative_to(SOURCE)}`"
        return path if found["text"].strip("`") in path else f"{found['text']} ({path})"

    source[0] = LINK.sub(link, source[0])


# ---- C: Doxygen reads the headers, Breathe reads Doxygen's output ----

XML = Path(os.environ["ONEBIT_SITE_XML"])
DOXYFILE = f"""
PROJECT_NAME = onebit
INPUT = {" ".join(str(SOURCE / "include/onebit" / header) for header in HEADERS)}
INPUT_FILTER = {HERE / "doxygen_filter.py"}
OUTPUT_DIRECTORY = {XML}
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
OPTIMIZE_OUTPUT_FOR_C = YES
EXTRACT_ALL = YES
QUIET = YES
AUTOLINK_SUPPORT = YES
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = ONEBIT_API= ONEBIT_NOEXCEPT= ONEBIT_ENUM_INT=
EXCLUDE_SYMBOLS = ONEBIT_API ONEBIT_NOEXCEPT ONEBIT_ENUM_INT
"""
XML.mkdir(parents=True, exist_ok=True)
subprocess.run(["doxygen", "-"], input=DOXYFILE, text=True, check=True)
breathe_projects = {"onebit": str(XML / "xml")}
breathe_default_project = "onebit"
breathe_domain_by_extension = {"h": "c"}
breathe_show_define_initializer = False

# ---- Python ----

sys.path.insert(0, str(SOURCE / "python"))
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
default_role = "code"


def adapt_docstring(app, what, name, thing, options, lines):
    """Rewrites lists, and code, which is indented by four, as reStructuredText."""
    adapted = []
    for line in with_lists(lines, "``"):
        if line.startswith("    ") and adapted[-1:] == [""]:
            adapted += ["::", ""]
        adapted.append(line)
    lines[:] = adapted


def setup(app):
    app.connect("source-read", adapt)
    app.connect("autodoc-process-docstring", adapt_docstring)
