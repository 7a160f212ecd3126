# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What needs processes: programs on torch.distributed."""

import pytest
from conftest import ROOT
from ranks import as_torchrun, torchrun

torch = pytest.importorskip("torch")
import onebit.torch  # noqa: E402
from onebit.torch import _fsdp  # noqa: E402

HAS_FSDP_HOOK = _fsdp.module_type() is not None


@pytest.mark.parametrize("size", [1, 2, 3])
def test_communicators_and_optimizers(size):
    assert as_torchrun(size, "distributed.py").count("ok") == size


@pytest.mark.parametrize("size", [2, 3])
def test_distributed_data_parallel(size):
    assert as_torchrun(size, "ddp.py").count("ok") == size


@pytest.mark.skipif(not HAS_FSDP_HOOK, reason="this PyTorch's FSDP2 can't be given an all-reduce")
@pytest.mark.parametrize("size", [2, 4])
def test_fsdp(size):
    assert as_torchrun(size, "fsdp.py").count("ok") == size


@pytest.mark.skipif(HAS_FSDP_HOOK, reason="this PyTorch's FSDP2 can be given an all-reduce")
def test_fsdp_is_refused_where_it_has_no_hook():
    with pytest.raises(RuntimeError, match="set_all_reduce_hook"):
        onebit.torch.fsdp_hook(torch.nn.Linear(2, 2))


@pytest.mark.skipif(torch.__version__ < "2.2", reason="this PyTorch's checkpoints have other functions")
def test_distributed_checkpoint(tmp_path):
    assert as_torchrun(2, "checkpoint.py", "save", str(tmp_path)).count("ok") == 2
    for size in (2, 3):
        assert as_torchrun(size, "checkpoint.py", "load", str(tmp_path)).count("ok") == size


@pytest.mark.skipif(torch.__version__ < "2.2", reason="this PyTorch's checkpoints have other functions")
def test_distributed_checkpoint_goes_on_on_two_levels(tmp_path, monkeypatch):
    assert as_torchrun(4, "checkpoint.py", "save", str(tmp_path)).count("ok") == 4
    monkeypatch.setenv("ONEBIT_NODE_SIZE", "2")
    monkeypatch.setenv("ONEBIT_ALGORITHM", "two_level")
    assert as_torchrun(4, "checkpoint.py", "load", str(tmp_path)).count("ok") == 4


def test_the_example():
    output = as_torchrun(2, ROOT / "examples/python/train.py", "--steps", "20")
    assert output.count("loss") == 10


@pytest.mark.parametrize(
    "framework, save, resume, compressed",
    [
        ("accelerate", "--epochs 2 --checkpoint {}", "--epochs 1 --resume {}", ["52 of 64", "84 of 96", "74 of 86"]),
        ("trainer", "--steps 9 --checkpoints {}", "--steps 12 --resume {}/checkpoint-9", ["8 of 9", *2 * ["11 of 12"]]),
        ("lightning", "--steps 40 --checkpoint {}/a", "--steps 50 --resume {}/a", ["32 of 40", "42 of 50", "42 of 50"]),
    ],
)
def test_the_examples_of_frameworks_go_on_from_their_checkpoints(framework, save, resume, compressed, tmp_path):
    pytest.importorskip("transformers" if framework == "trainer" else framework)
    example = ROOT / f"examples/python/train_{framework}.py"
    for size, arguments, expected in zip((2, 2, 3), (save, resume, resume), compressed):
        output = as_torchrun(size, example, *arguments.format(tmp_path).split())
        assert output.count(f"{expected} steps sent one bit") == size, output
        assert "has rank 0's part of the state alone" not in output


@pytest.mark.skipif(torch.__version__ >= "2", reason="Debian 13's has no libuv, which its torchrun needs")
def test_torchrun_itself():
    assert torchrun(2, "distributed.py").count("ok") == 2


def test_deepspeeds_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    pytest.importorskip("deepspeed")
    assert as_torchrun(2, "deepspeed_engine.py", str(tmp_path)).count("ok\n") == 2
