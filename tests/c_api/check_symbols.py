#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Fails if the functions that the public headers declare and those of another file are not the same list: the table of
header_test.c, the interfaces of the Fortran module, or the tables of the Python package; all but those that the language
can't call, or has a way of its own for. The package's modules must call what its tables list.

usage: check_symbols.py HEADER... header_test.c|onebit.f90|_c.py
"""
import re
import sys
from pathlib import Path


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


NEEDLESS = {  # by the other file's ending
    ".f90": {"onebit_comm_create_mpi"},  # C's MPI_Comm: onebit_comm_create_mpi_fortran stands for it
    ".py": {"onebit_comm_create_mpi"},
    ".c": set(),
}
NOT_CALLED = {"onebit_status_string"}  # Python has an enumeration


def listed(path):
    """The names in the other file, in order."""
    text = open(path, encoding="utf-8").read()
    if path.endswith(".f90"):
        interfaces = re.findall(r"\bfunction (\w+)\([^)]*\)[\s&]*bind\(c(?:, name=\"(\w+)\")?\)", text)
        return [name or function for function, name in interfaces if (name or function).startswith("onebit_")]
    if path.endswith(".py"):
        return re.findall(r'^    "(onebit_\w+)": \(', text, flags=re.M)
    return re.findall(r"\bROW\((onebit_\w+)\)", without_comments(text))


def not_called(path, names):
    """Those of the names that no module beside this one has."""
    modules = [module for module in Path(path).parent.rglob("*.py") if module != Path(path)]
    words = set(re.findall(r"\bonebit_\w+", "\n".join(module.read_text(encoding="utf-8") for module in modules)))
    return sorted(set(names) - words - NOT_CALLED)


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    headers, test = arguments[:-1], arguments[-1]
    functions = set().union(*(declared(header) for header in headers))
    rows = listed(test)
    functions -= NEEDLESS[Path(test).suffix]
    if not functions:
        sys.exit("no function found in the headers: has ONEBIT_API been renamed?")
    problems = [f"{name} is declared but not in {test}" for name in sorted(functions - set(rows))]
    problems += [f"{name} is in {test} but in no header" for name in sorted(set(rows) - functions)]
    problems += [f"{name} is in {test} more than once" for name in sorted({n for n in rows if rows.count(n) > 1})]
    if test.endswith(".py"):
        problems += [f"{name} is in {test}, but no module of the package calls it" for name in not_called(test, rows)]
    if problems:
        sys.exit("\n".join(problems))
    print(f"{len(functions)} functions")


if __name__ == "__main__":
    main(sys.argv[1:])
