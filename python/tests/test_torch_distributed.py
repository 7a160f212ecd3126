# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What needs processes: programs on torch.distributed."""

import pytest
from conftest import ROOT
from ranks import as_torchrun, torchrun

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_communicators_and_optimizers(size):
    assert as_torchrun(size, "distributed.py").count("ok") == size


@pytest.mark.parametrize("size", [2, 3])
def test_distributed_data_parallel(size):
    assert as_torchrun(size, "ddp.py").count("ok") == size


def test_the_example():
    output = as_torchrun(2, ROOT / "examples/python/train.py", "--steps", "20")
    assert output.count("loss") == 10


@pytest.mark.skipif(torch.__version__ >= "2", reason="Debian 13's has no libuv, which its torchrun needs")
def test_torchrun_itself():
    assert torchrun(2, "distributed.py").count("ok") == 2


def test_deepspeeds_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    pytest.importorskip("deepspeed")
    assert as_torchrun(2, "deepspeed_engine.py", str(tmp_path)).count("ok\n") == 2
