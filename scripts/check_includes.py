#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that the source's parts include each other only in the order of their layers.

  core <- numeric <- compress, core <- transport <- schedule and core <- topology; these <- collectives <- optim <- c_api.
  Compress, transport and topology never see each other.
  In collectives: call <- communicator <- sums <- selection <- operation <- phases <- forms <- shards <- what is in no
  folder, and cuda.

Prints one line per violation, "FILE:LINE: RULE: what is wrong", and exits with status 1 if there is any.

  scripts/check_includes.py [ROOT]      check the tree at ROOT (default: this script's repository)
  scripts/check_includes.py --self-test prove that each rule finds a violation of it
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

# The parts that each part may include, besides itself.
HOUSE = {
    "core": set(),
    "numeric": {"core"},
    "transport": {"core"},
    "schedule": {"core", "transport"},
    "topology": {"core"},
    "compress": {"core", "numeric"},
    "collectives": {"core", "numeric", "transport", "schedule", "topology", "compress"},
}
HOUSE["optim"] = set(HOUSE)
HOUSE["c_api"] = set(HOUSE)
# The folders of src/collectives, from the lowest layer up.
FLOORS = ("call", "communicator", "sums", "selection", "operation", "phases", "forms", "shards", "", "cuda")
# What is chosen may have to be measured first, by making it.
MAY_LOOK_UP = "src/collectives/selection/tune.cpp"
LIBRARY = ("src", "c_api", "include")
CHECKED = LIBRARY + ("tests", "bench", "examples", "tools")
SOURCES = {".c", ".cc", ".cpp", ".cu", ".cuh", ".def", ".h", ".hpp", ".inc"}
HEADERS = {".cuh", ".h", ".hpp"}

# Headers that would make every user of the library need MPI, NCCL or CUDA.
FOREIGN = re.compile(r"^(mpi(-ext)?\.h|nccl.*\.h|cuda.*|cu[a-z]+\.h|onebit/onebit_(mpi|nccl)\.h)$")
MPI = re.compile(r"^(mpi(-ext)?\.h|onebit/onebit_mpi\.h)$")
MAY_INCLUDE_MPI = re.compile(r"^(c_api/mpi/|include/onebit/onebit_mpi\.h$"
                             r"|(tests|bench|examples|tools)/)")
MAY_READ_ENVIRONMENT = re.compile(r"^src/core/config\.")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]*)[>"]', re.MULTILINE)
PRAGMA_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.MULTILINE)
GETENV = re.compile(r"\b(?:secure_)?getenv\b")
COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
    re.DOTALL)


def blank(text, strings):
    """Replaces comments, and strings if asked, by spaces: the other text keeps its place."""

    def spaces(match):
        found = match.group()
        if not strings and not found.startswith("/"):
            return found
        return re.sub(r"[^\n]", " ", found)

    return COMMENT_OR_STRING.sub(spaces, text)


def part_of(path):
    """The part that a file belongs to: a folder of src/, or c_api; None for all other files."""
    pieces = path.split("/")
    if pieces[0] == "c_api":
        return "c_api"
    return pieces[1] if pieces[0] == "src" and len(pieces) > 2 else None


class Checker:
    def __init__(self, root):
        self.root = root
        self.violations = []

    def check(self):
        for top in CHECKED:
            for path in sorted((self.root / top).rglob("*")):
                if path.is_file() and path.suffix in SOURCES:
                    self.check_file(path.relative_to(self.root).as_posix(), path.read_text(errors="replace"))
        return self.violations

    def add(self, path, line, rule, message):
        self.violations.append(f"{path}:{line}: {rule}: {message}")

    def check_file(self, path, text):
        code = blank(text, strings=False)
        for match in INCLUDE.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            self.check_mpi(path, line, match[2])
            if path.startswith("include/"):
                self.check_public(path, line, match[1], match[2])
            elif path.startswith(("src/", "c_api/")):
                self.check_layers(path, line, match[1], match[2])
        if path.startswith(LIBRARY):
            self.check_environment(path, text)
        in_library = path.startswith(("src/", "c_api/"))
        if in_library and Path(path).suffix in HEADERS and not PRAGMA_ONCE.search(code):
            self.add(path, 1, "pragma-once", "a header without #pragma once")
        if path.startswith("src/") and part_of(path) not in HOUSE:
            self.add(path, 1, "layers", f"not in one of src's parts ({', '.join(p for p in HOUSE if p != 'c_api')})")

    def check_mpi(self, path, line, included):
        if MPI.match(included) and not MAY_INCLUDE_MPI.match(path):
            self.add(path, line, "mpi", f"<{included}> belongs in c_api/mpi/ and onebit_mpi.h only")

    def check_environment(self, path, text):
        if MAY_READ_ENVIRONMENT.match(path):
            return
        code = blank(text, strings=True)
        for match in GETENV.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            self.add(path, line, "getenv", "the environment is read in src/core/config.* only")

    def check_public(self, path, line, bracket, included):
        if bracket == '"':
            self.add(path, line, "public", f'"{included}": public headers include <...> only, and nothing of src')
        elif included.split("/")[0] in HOUSE or (self.root / "src" / included).is_file():
            self.add(path, line, "public", f"<{included}> is of src: users don't have it")
        elif path in ("include/onebit/onebit.h", "include/onebit/onebit.hpp") and FOREIGN.match(included):
            self.add(path, line, "public", f"<{included}>: this header names no MPI, NCCL or CUDA")

    def check_layers(self, path, line, bracket, included):
        target = self.locate(path, line, bracket, included)
        source = part_of(path)
        if source == target == "collectives":
            self.check_floors(path, line, included)
        if target is None or source not in HOUSE or source == target:
            return
        if target not in HOUSE:
            self.add(path, line, "layers", f'"{included}": src/{target} is not a part of the house')
        elif source in HOUSE[target]:
            self.add(path, line, "layers", f'"{included}": {source} lies below {target}')
        elif target not in HOUSE[source]:
            self.add(path, line, "layers", f'"{included}": {source} and {target} never see each other')

    def check_floors(self, path, line, included):
        own, other = (file.removeprefix("collectives/").rpartition("/")[0] for file in (path[len("src/"):], included))
        for floor in (own, other):
            if floor not in FLOORS:
                self.add(path, line, "floors", f"src/collectives/{floor} is not one of its folders")
                return
        if FLOORS.index(other) > FLOORS.index(own) and path != MAY_LOOK_UP:
            self.add(path, line, "floors", f'"{included}": {own} lies below {other or "what is in no folder"}')

    def locate(self, path, line, bracket, included):
        """The part that an include leads to; None if it leads to no part, or if it is itself wrong (then reported)."""
        if bracket == "<":
            if included.split("/")[0] in HOUSE and (self.root / "src" / included).is_file():
                self.add(path, line, "spelling", f'<{included}> is our own: write "{included}"')
            return None
        if (self.root / "src" / included).is_file() and ".." not in included:
            return included.split("/")[0]
        beside = (self.root / path).parent / included
        if path.startswith("c_api/") and ".." not in included:
            if beside.is_file() or (included.startswith("c_api/") and (self.root / included).is_file()):
                return "c_api"
        if not path.startswith("c_api/") and included.startswith("c_api/"):
            return "c_api"
        hint = ""
        if beside.is_file() and (self.root / "src").resolve() in beside.resolve().parents:
            hint = f' (write "{beside.resolve().relative_to((self.root / "src").resolve()).as_posix()}")'
        self.add(path, line, "spelling", f'"{included}" is not relative to src{hint}')
        return None


HEADER = "#pragma once\n"
CLEAN = {
    "include/onebit/onebit.h": "#include <stddef.h>\n",
    "include/onebit/onebit.hpp": "#include <onebit/onebit.h>\n#include <vector>\n",
    "include/onebit/onebit_mpi.h": "#include <mpi.h>\n#include <onebit/onebit.h>\n",
    "src/core/status.hpp": "// a comment first\n" + HEADER + "#include <onebit/onebit.h>\n",
    "src/core/config.cpp": '#include "core/status.hpp"\nauto v = std::getenv("ONEBIT_LOG");\n',
    "src/numeric/mean.hpp": HEADER + '#include "core/status.hpp"\n',
    "src/compress/codec.hpp": HEADER + '#include "core/status.hpp"\n#include "numeric/mean.hpp"\n',
    "src/compress/sign/sign.cpp": '#include "compress/codec.hpp"\n// #include "transport/mpi.hpp" and getenv()\n',
    "src/transport/mpi.hpp": HEADER,
    "src/transport/mpi.cpp": '#include "transport/mpi.hpp"\nauto s = "getenv";\n',
    "src/topology/tree.hpp": HEADER,
    "src/schedule/ring.hpp": HEADER + '#include "transport/mpi.hpp"\n',
    "src/collectives/allreduce.hpp": HEADER + '#include "collectives/forms/flat.hpp"\n',
    "src/collectives/selection/tune.cpp": '#include "collectives/allreduce.hpp"\n',
    "src/collectives/forms/flat.hpp": HEADER + '#include "compress/codec.hpp"\n#include "transport/mpi.hpp"\n',
    "src/optim/adam.hpp": HEADER + '#include "collectives/forms/flat.hpp"\n',
    "c_api/guard.hpp": HEADER + '#include "core/status.hpp"\n',
    "c_api/mpi/comm.cpp": '#include <onebit/onebit_mpi.h>\n#include "c_api/guard.hpp"\n',
    "tests/test.cpp": '#include <mpi.h>\n#include "helper.hpp"\nauto v = getenv("X");\n',
    "bench/bench.cpp": "#include <mpi.h>\n",
}
# The file, the text that is added to it, and the rule that must report it.
MADE_UP = [
    ("src/core/status.hpp", '#include "compress/codec.hpp"\n', "layers"),
    ("src/numeric/mean.hpp", '#include "compress/codec.hpp"\n', "layers"),
    ("src/transport/mpi.cpp", '#include "numeric/mean.hpp"\n', "layers"),
    ("src/core/config.cpp", '#include "c_api/guard.hpp"\n', "layers"),
    ("src/compress/codec.hpp", '#include "transport/mpi.hpp"\n', "layers"),
    ("src/compress/sign/sign.cpp", '#  include  "topology/tree.hpp"\n', "layers"),
    ("src/transport/mpi.cpp", '#include "compress/codec.hpp"\n', "layers"),
    ("src/topology/tree.hpp", '#include "transport/mpi.hpp"\n', "layers"),
    ("src/collectives/forms/flat.hpp", '#include "optim/adam.hpp"\n', "layers"),
    ("src/transport/mpi.cpp", '#include "schedule/ring.hpp"\n', "layers"),
    ("src/collectives/forms/flat.hpp", '#include "collectives/allreduce.hpp"\n', "floors"),
    ("src/collectives/sums/dense.cpp", '#include "collectives/forms/flat.hpp"\n', "floors"),
    ("src/collectives/misc/flat.cpp", '#include "collectives/allreduce.hpp"\n', "floors"),
    ("src/util/strings.cpp", "int x;\n", "layers"),
    ("src/compress/sign/sign.cpp", '#include "../codec.hpp"\n', "spelling"),
    ("src/transport/mpi.cpp", '#include "mpi.hpp"\n', "spelling"),
    ("src/collectives/forms/flat.hpp", "#include <core/status.hpp>\n", "spelling"),
    ("c_api/mpi/comm.cpp", '#include "../src/core/status.hpp"\n', "spelling"),
    ("include/onebit/onebit.h", "#include <mpi.h>\n", "public mpi"),
    ("include/onebit/onebit.h", "#include <cuda_runtime.h>\n", "public"),
    ("include/onebit/onebit.hpp", "#include <nccl.h>\n", "public"),
    ("include/onebit/onebit.hpp", '#include "core/status.hpp"\n', "public"),
    ("include/onebit/onebit_mpi.h", "#include <core/status.hpp>\n", "public"),
    ("src/transport/mpi.cpp", 'auto v = getenv("ONEBIT_LOG");\n', "getenv"),
    ("c_api/guard.hpp", 'auto v = ::secure_getenv("ONEBIT_LOG");\n', "getenv"),
    ("src/collectives/forms/flat.hpp", "#include <mpi.h>\n", "mpi"),
    ("src/core/status.hpp", "#include <onebit/onebit_mpi.h>\n", "mpi"),
    ("src/transport/mpi.cpp", "#include <mpi.h>\n", "mpi"),
    ("c_api/guard.hpp", "#include <mpi.h>\n", "mpi"),
    ("src/optim/lamb.hpp", "// #pragma once\nint x;\n", "pragma-once"),
]


def check_made_up(files):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return Checker(root).check()


def self_test():
    """Each made-up violation must give exactly its own lines, at its own place; the clean tree gives none."""
    failures = [f"clean tree: {violation}" for violation in check_made_up(CLEAN)]
    for path, addition, rules in MADE_UP:
        before = CLEAN.get(path, "")
        line = before.count("\n") + 1
        found = check_made_up({**CLEAN, path: before + addition})
        prefixes = sorted(f"{path}:{line}: {rule}" for rule in rules.split())
        if sorted(violation.rsplit(": ", violation.count(": ") - 1)[0] for violation in found) != prefixes:
            failures.append(f"{path} + {addition.strip()!r}: wanted {prefixes}, found {found}")
    for failure in failures:
        print(f"self-test: {failure}")
    print(f"self-test: {len(MADE_UP) + 1} trees, {len(failures)} failures")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    if not (arguments.root / "include" / "onebit").is_dir():
        parser.error(f"{arguments.root} is not onebit's repository: it has no include/onebit")
    violations = Checker(arguments.root).check()
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
