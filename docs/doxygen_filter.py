#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Prints a public header in a form for Doxygen: the header's comments are plain C, its parameter lists are columns."""

import re
import sys
from pathlib import Path

RULER = re.compile(r"^/\* -{10,} (.+?) -+ \*/$")
PARAMETER = re.compile(r"^  ([a-z_][\w, ]*?)  +(\S.*)$")
BULLET = re.compile(r"^  - (.*)$")
BEHIND = re.compile(r"/\* (.+)")
FUNCTION = re.compile(r"^ONEBIT_API .*?\b(onebit_\w+)\(", re.MULTILINE)
TITLES = {"onebit_mpi": "MPI", "onebit_nccl": "NCCL"}  # names for headers without rulers


def names_of_functions(folder):
    """The functions that all headers declare."""
    texts = [header.read_text(encoding="utf-8") for header in sorted(folder.glob("*.h"))]
    return {name for text in texts for name in FUNCTION.findall(text)}


def with_lists(lines, quote="`"):
    """A comment's lines, with lists that Markdown and reStructuredText understand. `quote`: put around code."""
    in_list = False
    for line in lines:
        item = PARAMETER.match(line) or BULLET.match(line)
        if item:
            if not in_list:
                yield ""
            yield "- " + (f"{quote}{item[1]}{quote}: {item[2]}" if item.re is PARAMETER else item[1])
            in_list = True
        elif in_list and line.startswith("    "):
            yield "  " + line.strip()
        else:
            if in_list:
                yield ""
            in_list = False
            yield line


def with_links(lines, names):
    """A comment's lines with links to functions, and without emphasis."""
    for line in lines:
        line = re.sub(r"\*(?=\w)", r"\\*", line)
        yield re.sub(r"\bonebit_\w+\b(?!\()", lambda word: word[0] + "()" * (word[0] in names), line)


def sections(text, title):
    """The header's lines. Each ruler begins a group; without rulers all lines are one group."""
    opened = False
    lines = text.splitlines()
    if title is not None:
        begin = lines.index("#define ONEBIT_ONEBIT_" + title + "_H") + 1
        lines.insert(begin, f"/* {'-' * 90} {title} ---- */")
    for line in lines:
        ruler = RULER.match(line)
        if ruler is None:
            yield line
            continue
        if opened:
            yield "/** @} */"
        name = re.sub(r"\W+", "_", ruler[1].lower())
        yield f"/** @defgroup {name} {ruler[1]}"
        yield " * @{ */"
        opened = True
    if opened:
        yield "/** @} */"


def comments(lines, names):
    """The same lines, with each comment in Doxygen's form."""
    lines = iter(lines)
    for line in lines:
        if line.startswith("/* "):
            block = [line]
            while not block[-1].endswith("*/"):
                block.append(next(lines))
            texts = [re.sub(r"^(/\*| \*) ?", "", each) for each in block]
            texts[-1] = texts[-1].removesuffix("*/").rstrip()
            yield "/**"
            for text in with_lists(with_links(texts, names)):
                yield (" * " + text).rstrip()
            yield " */"
        else:
            yield BEHIND.sub(r"/**< \1", line) if re.match(r" +\w", line) else line


def functions(lines):
    """The same lines, with a short comment for each function that shares the previous function's comment."""
    first = None
    commented = False
    for line in lines:
        function = FUNCTION.match(line)
        if function is not None:
            if commented:
                first = function[1]
            else:
                yield f"/** Described with {first}(). */"
        if line.strip():
            commented = line == " */"
        yield line


def main():
    header = Path(sys.argv[1])
    grouped = sections(header.read_text(encoding="utf-8"), TITLES.get(header.stem))
    print("\n".join(functions(comments(grouped, names_of_functions(header.parent)))))


if __name__ == "__main__":
    main()
