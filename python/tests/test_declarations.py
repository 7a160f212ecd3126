# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
import re
import subprocess
import sys

import pytest
from conftest import ROOT

from onebit import _c
from onebit._library import library

HEADERS = ROOT / "include/onebit"


def test_generated_files_are_up_to_date():
    command = [sys.executable, ROOT / "python/tools/generate_c.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("header", ["onebit.h", "onebit_mpi.h", "onebit_nccl.h"])
def test_every_function_is_declared(header):
    text = re.sub(r"/\*.*?\*/", "", (HEADERS / header).read_text(), flags=re.S)
    functions = set(re.findall(r"\b(onebit_\w+)\s*\(", text)) - {"onebit_comm_create_mpi"}
    assert functions, header
    assert functions <= set(_c.FUNCTIONS) | set(_c.MPI_FUNCTIONS)


def test_the_library_has_every_function_of_the_contract():
    text = re.sub(r"/\*.*?\*/", "", (HEADERS / "onebit.h").read_text(), flags=re.S)
    for name in set(re.findall(r"\b(onebit_\w+)\s*\(", text)):
        assert hasattr(library, name), name


@pytest.mark.parametrize("name", re.findall(r"class (\w+)\(Structure\)", (ROOT / "python/onebit/_c.py").read_text()))
def test_structs_have_the_size_that_the_library_knows(name):
    """Its _init functions refuse any other."""
    import ctypes

    struct = getattr(_c, name)()
    init = getattr(library, "onebit_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() + "_init")
    init(ctypes.byref(struct), ctypes.sizeof(struct), *(kind() for kind in init.argtypes[2:]))
    assert struct.size == ctypes.sizeof(struct)
    assert struct.version == struct.VERSION
