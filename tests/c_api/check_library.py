#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Fails if a shared library needs another library than those of the C and C++ compiler and those that are named,
exports anything but functions that begin with onebit_, or wants room for thread-local data that a program that opens it
late may not have.

usage: check_library.py READELF LIBRARY [NEEDED...]
"""
import re
import subprocess
import sys

# Any program in C++ has them. Of glibc before 2.34 the last three are libraries of their own.
COMPILERS = re.compile(r"(lib(c|m|stdc\+\+|gcc_s|dl|pthread|rt)|ld-linux-[\w-]+)\.so\.\d+")


def dynamic_section(readelf, library):
    return subprocess.run([readelf, "--dynamic", "--wide", library], check=True, capture_output=True, text=True).stdout


def needed(dynamic):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)


def wants_static_tls(dynamic):
    """Whether dlopen refuses it once the loader's few spare bytes for the initial-exec model are gone."""
    return re.search(r"\(FLAGS\).*\bSTATIC_TLS\b", dynamic) is not None


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
    dynamic = dynamic_section(readelf, library)
    needs, names = needed(dynamic), exported(readelf, library)
    if not needs or not names:
        sys.exit(f"{library}: {readelf} shows no libraries that it needs, or no functions")
    problems = [f"{library} needs {name}" for name in needs if not COMPILERS.fullmatch(name) and name not in allowed]
    problems += [f"{library} exports {name}" for name in names if not name.startswith("onebit_")]
    if wants_static_tls(dynamic):
        problems.append(f"{library} has a thread-local variable of the initial-exec model: dlopen may refuse it")
    if problems:
        sys.exit("\n".join(problems))
    print(f"{len(needs)} libraries needed, {len(names)} functions exported")


if __name__ == "__main__":
    main(sys.argv[1:])
