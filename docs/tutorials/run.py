#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a tutorial: writes its programs to files, runs its commands, compares their output with the page.

  run.py PAGE.md --prefix DIR [--libdir lib64]

A listing with a caption is written to a file of that name. An "sh" block is run. A "text" block after it is the
expected output; "..." in it matches any text. Everything runs in a new empty directory.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^```(?P<head>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
CAPTION = re.compile(r"\A:caption: (?P<name>\S+)\n\n")
SECONDS = 300


def blocks_of(page):
    """The page's blocks: (kind, name or None, text)."""
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        caption = CAPTION.match(block["body"])
        if caption is None:
            yield block["head"].strip(), None, block["body"]
        else:
            yield "file", caption["name"], block["body"][caption.end():]


def environment_of(prefix, libdir):
    """Variables by which tools find the installation, and by which root may run MPI, with ranks that share cores."""
    found = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1",
                 OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1")

    def put_first(name, folder):
        found[name] = os.pathsep.join([str(prefix / folder), *filter(None, [found.get(name)])])

    put_first("PATH", Path(sys.executable).parent)
    for name, folder in [("PATH", "bin"), ("PKG_CONFIG_PATH", f"{libdir}/pkgconfig"), ("LD_LIBRARY_PATH", libdir)]:
        put_first(name, folder)
    return found


def matches(expected, printed):
    pattern = re.escape(expected.strip()).replace(re.escape("..."), ".*?")
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def run(page, environment):
    printed = None
    with tempfile.TemporaryDirectory() as folder:
        for kind, name, text in blocks_of(page):
            if kind == "file":
                Path(folder, name).write_text(text, encoding="utf-8")
            elif kind == "sh":
                print("$ " + "\n  ".join(text.splitlines()), flush=True)
                done = subprocess.run(["bash", "-euc", text], cwd=folder, env=environment, stdout=subprocess.PIPE,
                                      text=True, timeout=SECONDS, check=False)
                printed = done.stdout
                print(printed, end="", flush=True)
                if done.returncode != 0:
                    return f"{page}: a command ends with {done.returncode}"
            elif kind == "text" and printed is not None and not matches(text, printed):
                return f"{page}: the page says it prints\n{text}"
    return None if printed is not None else f"{page}: no command"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--prefix", type=Path, required=True, help="where onebit is installed")
    parser.add_argument("--libdir", default="lib", help="its folder for libraries [%(default)s]")
    options = parser.parse_args()
    wrong = run(options.page, environment_of(options.prefix, options.libdir))
    if wrong is not None:
        sys.exit(wrong)


if __name__ == "__main__":
    main()
