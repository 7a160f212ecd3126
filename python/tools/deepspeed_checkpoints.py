#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the checkpoints in tests/data/deepspeed, with DeepSpeed 0.19.6, the last version that can.

  for rank in 0 1; do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 DS_ACCELERATOR=cpu \\
      python3 deepspeed_checkpoints.py tests/data/deepspeed OneBitAdam float32 &
  done

Each file is written by save_checkpoint after STEPS steps. Its added entry "after" has the weights after MORE steps.
NumPy stands in for CuPy, which DeepSpeed's 1-bit optimizers import, so that they run without a GPU.
"""

import shutil
import sys
import types
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
import torch.utils.dlpack

STEPS, MORE = 5, 3
CONFIG = {"train_micro_batch_size_per_gpu": 8, "gradient_clipping": 0.0}
PARAMS = {"lr": 0.01, "betas": [0.8, 0.99], "eps": 1e-6, "weight_decay": 0.1}


def numpy_as_cupy():
    cupy = types.ModuleType("cupy")
    for name in ("packbits", "unpackbits", "split", "zeros", "asarray"):
        setattr(cupy, name, getattr(numpy, name))
    cupy.from_dlpack = lambda capsule: torch.utils.dlpack.from_dlpack(capsule).numpy()
    nothing = types.SimpleNamespace(use=lambda: None, synchronize=lambda: None)
    cupy.cuda = types.SimpleNamespace(Device=lambda rank: nothing, get_current_stream=lambda: nothing)
    return cupy


def gather_as_nccl_does(all_gather):
    """gloo requires equal shapes, but DeepSpeed passes () for (1,)."""

    def gather(tensor_list, tensor, group=None, async_op=False):
        return all_gather(tensor_list, tensor.reshape(tensor_list[0].shape), group, async_op)

    return gather


def model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


def batch(step, rank):
    inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(100 * step + rank))
    return inputs, inputs[:, :1] * inputs[:, 1:2]


def train(engine, begin, end):
    dtype = next(engine.module.parameters()).dtype
    for step in range(begin, end):
        inputs, targets = batch(step, dist.get_rank())
        engine.backward(torch.nn.functional.mse_loss(engine(inputs.to(dtype)).float(), targets))
        engine.step()


def main(folder, kind, precision):
    sys.modules["cupy"] = numpy_as_cupy()
    dist.all_gather = gather_as_nccl_does(dist.all_gather)
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled
    deepspeed.init_distributed("gloo", verbose=False)
    freeze = {"var_freeze_step": 1000} if kind == "ZeroOneAdam" else {"freeze_step": 1000}
    config = {**CONFIG, "optimizer": {"type": kind, "params": {**PARAMS, **freeze}}}
    config["bf16"] = {"enabled": precision == "bf16"}
    net = model()
    engine = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)[0]
    train(engine, 0, STEPS)
    directory = Path(folder) / "written"
    engine.save_checkpoint(directory, tag="now")
    train(engine, STEPS, STEPS + MORE)
    after = {name: values.float() for name, values in net.state_dict().items()}
    if dist.get_rank() == 0:
        content = torch.load(directory / "now/mp_rank_00_model_states.pt", weights_only=True)
        torch.save({**content, "after": after}, Path(folder) / f"{kind}-{precision}.pt")
        shutil.rmtree(directory)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
