#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Fails, naming what has changed, if programs compiled against the OLD public headers don't fit a library of the NEW ones.

usage: compare.py OLD_INCLUDE NEW_INCLUDE [--cc CC] [--abidiff ABIDIFF]
       compare.py --self-test INCLUDE [--cc CC] [--abidiff ABIDIFF]

Both sets of headers become a small library each, of all functions they declare, by the same compiler: so neither the
library's own build matters, nor which MPI there is. abidiff (libabigail) compares these two. Functions, enumerators and
members at a struct's end may have been added; with --self-test changes that break programs, and some that don't, are
made to the headers, to see that they are told apart.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

HEADERS = ("onebit.h", "onebit_mpi.h", "onebit_nccl.h")
ANY_MPI = "typedef struct any_mpi_comm* MPI_Comm;\ntypedef int MPI_Fint;\n"
# Constants that may change with each release, or that a program doesn't keep.
FREE_CONSTANTS = r"ONEBIT_(VERSION_\w+|\w+_INIT|API|NOEXCEPT|ENUM_INT|\w+_H)"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def definitions(include):
    """C that defines, to no purpose, every function that the headers declare."""
    text = "".join(f"#include <onebit/{header}>\n" for header in HEADERS)
    for header in HEADERS:
        code = re.sub(r"/\*.*?\*/", " ", read(f"{include}/onebit/{header}"), flags=re.S)
        code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", code, flags=re.M)
        for declaration in re.findall(r"\bONEBIT_API\b([^;]*);", code):
            text += declaration.replace("ONEBIT_NOEXCEPT", "").strip() + " { __builtin_trap(); }\n"
    return text


def constants(cc, flags, source):
    """The values of the headers' macros, by name."""
    code, output = run([cc, *flags, "-E", "-dM", source])
    if code != 0:
        sys.exit(output)
    found = dict(re.findall(r"^#define (ONEBIT_\w+) (.*)$", output, flags=re.M))
    return {name: value for name, value in found.items() if not re.fullmatch(FREE_CONSTANTS, name)}


def build(include, folder, cc):
    """The library of the headers' functions, and the headers' constants."""
    os.makedirs(folder)
    write(f"{folder}/mpi.h", ANY_MPI)
    source, library = f"{folder}/onebit.c", f"{folder}/libonebit.so"
    write(source, definitions(include))
    flags = ["-std=c11", f"-I{include}", f"-I{folder}"]
    code, output = run([cc, *flags, "-g", "-O0", "-fPIC", "-shared", "-o", library, source])
    if code != 0:
        sys.exit(f"compare.py: {include}: the headers can't be compiled\n{output}")
    return library, constants(cc, flags, source)


# The lines of a report that say where a change is, and not what.
PLACES = re.compile(
    r"(Functions|Variables) changes summary: 0 Removed, .*|\d+ functions? with some indirect sub-type changes?:"
    r"|\[C\] 'function .*' has some indirect sub-type changes:|parameter \d+ of type '.*' has sub-type changes:"
    r"|(in )?(pointed to|underlying|unqualified underlying) type '.*'( changed)?(:|, as reported earlier)"
    r"|type size hasn't changed|no data member changes? \(\d+ filtered\);|\d+ data member changes?:|type of '.*' changed:|\d+ data member insertions?:|")


def only_grows(report):
    """Whether members behind the ends of structs are all that the report tells of. (abidiff can be told to suppress these,
    but then it says nothing of other changes in such a struct either.)"""
    old_end = None
    for line in map(str.strip, report.splitlines()):
        size = re.fullmatch(r"type size changed from (\d+) to (\d+) \(in bits\)", line)
        member = re.fullmatch(r"'.*', at offset (\d+) \(in bits\)", line)
        if size and int(size[1]) < int(size[2]):
            old_end = int(size[1])
        elif member and old_end is not None and int(member[1]) >= old_end:
            pass
        elif not PLACES.fullmatch(line):
            return False
    return True


def compare(old, new, tools):
    """What of the old headers no longer holds, as text; "" if all does."""
    with tempfile.TemporaryDirectory() as folder:
        old_library, old_constants = build(old, f"{folder}/old", tools.cc)
        new_library, new_constants = build(new, f"{folder}/new", tools.cc)
        code, output = run([tools.abidiff, "--no-added-syms", "--no-show-locs", old_library, new_library])
    if code & 3:  # 1: it failed, 2: so were its arguments
        sys.exit(f"compare.py: {tools.abidiff} failed\n{output}")
    problems = output if code and not only_grows(output) else ""
    for name, value in sorted(old_constants.items()):
        if new_constants.get(name) != value:
            problems += f"{name} was {value}, and is now {new_constants.get(name, 'no more')}\n"
    return problems


# A name that the report must hold, or none where the change may be made; what is changed, and to what.
SELF_TESTS = (
    (None, r"a^", ""),
    (None, r"(char reason\[288\];)", r"\1 uint64_t later;"),
    (None, r"(\} onebit_(?:allreduce|optimizer)_config_t;)", r"uint64_t later[3]; \1"),
    ("onebit_optimizer_config", r"(void\* stream;)", r"\1 uint64_t between[3];"),
    (None, r"(double weight_decay;)", r"\1 double later;"),
    ("onebit_comm_info", r"(char reason\[28)8\];", r"\g<1>0]; uint64_t taken;"),
    ("onebit_tensor", r"float\* parameters;", "double* parameters;"),
    (None, r"(ONEBIT_SCALE_L1 = 1)", r"\1, ONEBIT_SCALE_LATER = 2"),
    (None, r"(ONEBIT_BFLOAT16 = 2)([^}]*)(}(?:.|\n)*)(\} onebit_allreduce_config_t;)",
     r"\1, ONEBIT_TYPE_LATER = 77\2\3 uint64_t later; \4"),
    (None, r"(ONEBIT_API int onebit_version_number)", r"ONEBIT_API int onebit_later(int) ONEBIT_NOEXCEPT;\n\1"),
    ("onebit_comm_info", r"(char transport\[32\];)", r"uint64_t between; \1"),
    ("onebit_tensor", r"(uint64_t count; )", r"uint64_t between; \1"),
    ("onebit_param_group", r"(double lr; )", r"float lr, rest; "),
    ("onebit_param_group", r"(double weight_decay;)", ""),
    ("onebit_param_group", r"(double eps; .*\n.*)(double weight_decay;)", r"\2 double eps; "),
    ("onebit_bootstrap", r"uint32_t reserved;", "int32_t reserved;"),
    ("onebit_comm_info", r"char reason\[288\];", "char reason[289]; uint64_t later;"),
    ("ONEBIT_ALGORITHM_RING", r"ONEBIT_ALGORITHM_RING = 6", "ONEBIT_ALGORITHM_RING = 7"),
    ("ONEBIT_GROUP_BUFFER", r"ONEBIT_GROUP_BUFFER = 1", "ONEBIT_GROUP_TEXT = 1"),
    ("onebit_comm_tune", r"(onebit_comm_tune\(onebit_comm_t comm, )uint64_t", r"\1uint32_t"),
    ("onebit_mem_free", r"ONEBIT_API onebit_status_t onebit_mem_free[^;]*;", ""),
    ("onebit_version_number", r"ONEBIT_API int onebit_version_number", "ONEBIT_API long onebit_version_number"),
    ("ONEBIT_FREEZE_AUTO", r"#define ONEBIT_FREEZE_AUTO 0", "#define ONEBIT_FREEZE_AUTO 1"),
    ("ONEBIT_TENSOR_VERSION", r"#define ONEBIT_TENSOR_VERSION 1", "#define ONEBIT_TENSOR_VERSION 2"),
)


def self_test(include, tools):
    failures = 0
    for name, pattern, replacement in SELF_TESTS:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(f"{include}/onebit", f"{folder}/onebit")
            text, changes = re.subn(pattern, replacement, read(f"{include}/onebit/onebit.h"))
            write(f"{folder}/onebit/onebit.h", text)
            report = compare(include, folder, tools)
        if changes == 0 and pattern != "a^":
            failures += 1
            print(f"FAILED: {pattern} is not in onebit.h")
        elif (name is None) != (report == "") or (name or "") not in report:
            failures += 1
            print(f"FAILED: {pattern} -> {replacement}: expected {name or 'no objection'}, got:\n{report}")
    if failures:
        sys.exit(1)
    print(f"{len(SELF_TESTS)} changes told apart")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("includes", nargs="+")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--abidiff", default="abidiff")
    tools = parser.parse_args()
    if len(tools.includes) != (1 if tools.self_test else 2):
        sys.exit(__doc__)
    if tools.self_test:
        self_test(tools.includes[0], tools)
        return
    report = compare(*tools.includes, tools)
    if report:
        sys.exit(f"{report}compare.py: programs compiled against {tools.includes[0]} no longer fit "
                 "(CONTRIBUTING.md, \"The ABI\"; until that version is released scripts/store_headers.sh stores its headers anew)")
    print("nothing has changed that a program was compiled against")


if __name__ == "__main__":
    main()
