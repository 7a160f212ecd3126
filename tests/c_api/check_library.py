#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Fails if a shared library needs another library than those of the C and C++ compiler and those that are named, or
exports anything but functions that begin with onebit_.

usage: check_library.py READELF LIBRARY [NEEDED...]
"""
import re
import subprocess
import sys

# Any program in C++ has them. Of glibc before 2.34 the last three are libraries of their own.
COMPILERS = re.compile(r"(lib(c|m|stdc\+\+|gcc_s|dl|pthread|rt)|ld-linux-[\w-]+)\.so\.\d+")


def needed(readelf, library):
    text = subprocess.run([readelf, "--dynamic", "--wide", library], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def exported(readelf, library):
    """Names of the dynamic symbols that are defined in it."""
    text = subprocess.run([readelf, "--dyn-syms", "--wide", library], check=True, capture_output=True, text=True).stdout
    rows = (line.split() for line in text.splitlines())
    return [row[7].split("@")[0] for row in rows
            if len(row) > 7 and row[0].endswith(":") and row[3] != "SECTION" and row[6].isdigit()]


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    readelf, library, allowed = arguments[0], arguments[1], arguments[2:]
    needs, names = needed(readelf, library), exported(readelf, library)
    if not needs or not names:
        sys.exit(f"{library}: {readelf} shows no libraries that it needs, or no functions")
    problems = [f"{library} needs {name}" for name in needs if not COMPILERS.fullmatch(name) and name not in allowed]
    problems += [f"{library} exports {name}" for name in names if not name.startswith("onebit_")]
    if problems:
        sys.exit("\n".join(problems))
    print(f"{len(needs)} libraries needed, {len(names)} functions exported")


if __name__ == "__main__":
    main(sys.argv[1:])
