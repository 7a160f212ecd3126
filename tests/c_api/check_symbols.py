#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Fails if the functions that the public headers declare and those of another file are not the same list: the table of
header_test.c, or the interfaces of the Fortran module, all but those that Fortran can't call.

usage: check_symbols.py HEADER... header_test.c|onebit.f90
"""
import re
import sys


def without_comments(text):
    return re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", " ", text, flags=re.S))


def declared(path):
    """The names of the functions declared with ONEBIT_API; its own #define lines are none."""
    text = without_comments(open(path, encoding="utf-8").read())
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    declarations = re.findall(r"\bONEBIT_API\b([^;]*);", text)
    names = [re.search(r"\b(onebit_\w+)\s*\(", declaration) for declaration in declarations]
    if None in names:
        sys.exit(f"{path}: a declaration with ONEBIT_API that names no function: {declarations[names.index(None)]!r}")
    # A function that lacks ONEBIT_API would be hidden from those who link the shared library.
    unmarked = set(re.findall(r"\bonebit_status_t\s+(onebit_\w+)\s*\(", text)) - {name.group(1) for name in names}
    if unmarked:
        sys.exit(f"{path}: without ONEBIT_API: {', '.join(sorted(unmarked))}")
    return {name.group(1) for name in names}


NOT_FORTRAN = {"onebit_comm_create_loopback", "onebit_comm_create_mpi"}  # ranks that are threads; C's MPI_Comm


def listed(path):
    """The names in the other file, in order."""
    text = open(path, encoding="utf-8").read()
    if path.endswith(".f90"):
        interfaces = re.findall(r"\bfunction (\w+)\([^)]*\)[\s&]*bind\(c(?:, name=\"(\w+)\")?\)", text)
        return [name or function for function, name in interfaces if (name or function).startswith("onebit_")]
    return re.findall(r"\bROW\((onebit_\w+)\)", without_comments(text))


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    headers, test = arguments[:-1], arguments[-1]
    functions = set().union(*(declared(header) for header in headers))
    rows = listed(test)
    if test.endswith(".f90"):
        functions -= NOT_FORTRAN
    if not functions:
        sys.exit("no function found in the headers: has ONEBIT_API been renamed?")
    problems = [f"{name} is declared but not in {test}" for name in sorted(functions - set(rows))]
    problems += [f"{name} is in {test} but in no header" for name in sorted(set(rows) - functions)]
    problems += [f"{name} is in {test} more than once" for name in sorted({n for n in rows if rows.count(n) > 1})]
    if problems:
        sys.exit("\n".join(problems))
    print(f"{len(functions)} functions")


if __name__ == "__main__":
    main(sys.argv[1:])
