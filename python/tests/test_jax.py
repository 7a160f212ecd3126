# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""JAX, on processes of jax.distributed."""

import pytest
from conftest import ROOT
from ranks import free_address, run_together

pytest.importorskip("jax")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_communicators_and_averages(size, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    address = free_address()
    output = run_together("jax_ranks.py", [[address, str(size), str(rank)] for rank in range(size)])
    assert output.count("ok\n") == size


def test_the_example(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    shared = ["--coordinator", free_address(), "--size", "2", "--steps", "20"]
    output = run_together(ROOT / "examples/python/jax_train.py", [[*shared, "--rank", str(rank)] for rank in range(2)])
    assert output.count("loss") == 10
