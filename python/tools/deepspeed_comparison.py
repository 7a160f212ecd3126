#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""One small training by DeepSpeed 0.19.6 and by onebit, on two ranks or more: losses, or with --wide time per step.

  export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 DS_ACCELERATOR=cpu OMP_NUM_THREADS=1
  for rank in 0 1; do
    RANK=$rank LOCAL_RANK=$rank python3 deepspeed_comparison.py OneBitAdam --library deepspeed &
  done

Both use the same model, batches and settings. --wide has 24 tensors of 65536 elements, and almost no computation.
DeepSpeed's compressed exchange runs on the CPU over gloo, with NumPy instead of CuPy.
"""

import argparse
import statistics
import sys
import time

import deepspeed_checkpoints as shims
import torch
import torch.distributed as dist

import onebit.torch

INPUTS, WIDTH, BATCH = 64, 128, 64


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["OneBitAdam", "OneBitLamb", "ZeroOneAdam"])
    parser.add_argument("--library", choices=["deepspeed", "onebit"], required=True)
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--steps", type=int, default=400, help="[%(default)s]")
    parser.add_argument("--freeze", type=int, default=150, help="[%(default)s]")
    parser.add_argument("--lr", type=float, default=1e-3, help="[%(default)s]")
    return parser.parse_args()


class Wide(torch.nn.Module):
    """Each element's gradient is its difference from the batch's first input."""

    def __init__(self):
        super().__init__()
        self.tensors = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(65536)) for _ in range(24))

    def forward(self, inputs):
        return sum(((tensor - inputs[0, 0]) ** 2).sum() for tensor in self.tensors)


def model(wide):
    if wide:
        return Wide()
    torch.manual_seed(1)
    linear, gelu = torch.nn.Linear, torch.nn.GELU
    return torch.nn.Sequential(linear(INPUTS, WIDTH), gelu(), linear(WIDTH, WIDTH), gelu(), linear(WIDTH, 1))


def batch(seed):
    inputs = torch.randn(BATCH, INPUTS, generator=torch.Generator().manual_seed(seed))
    return inputs, (inputs[:, :-1] * inputs[:, 1:]).sum(dim=1, keepdim=True) / INPUTS**0.5


def loss_of(net, seed):
    inputs, targets = batch(seed)
    outputs = net(inputs)
    return outputs if outputs.dim() == 0 else torch.nn.functional.mse_loss(outputs, targets)


def config_of(options):
    freeze = "var_freeze_step" if options.kind == "ZeroOneAdam" else "freeze_step"
    params = {"lr": options.lr, "betas": [0.9, 0.99], freeze: options.freeze}
    return {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_clipping": 0.0,
        "optimizer": {"type": options.kind, "params": params},
    }


def deepspeeds_step(net, config):
    sys.modules["cupy"] = shims.numpy_as_cupy()
    dist.all_gather = shims.gather_as_nccl_does(dist.all_gather)
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled
    deepspeed.init_distributed("gloo", verbose=False)
    engine = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)[0]

    def step(seed):
        engine.backward(loss_of(engine, seed))
        engine.step()

    return step, lambda: ""


def onebits_step(net, config):
    optimizer = onebit.torch.from_deepspeed(net.parameters(), config)

    def step(seed):
        optimizer.zero_grad()
        loss_of(net, seed).backward()
        optimizer.step()

    def counted():
        return f"; {optimizer.info.compressed_rounds} compressed steps, {optimizer.info.thaws} thaws"

    return step, counted


def held_out(net):
    with torch.no_grad():
        return sum(float(loss_of(net, 10**9 + i)) for i in range(50)) / 50


def main():
    options = parse_arguments()
    dist.init_process_group("gloo")
    net = model(options.wide)
    step_of = deepspeeds_step if options.library == "deepspeed" else onebits_step
    step, counted = step_of(net, config_of(options))
    times, losses = [], []
    for number in range(options.steps):
        dist.barrier()
        begin = time.perf_counter()
        step(number * dist.get_world_size() + dist.get_rank())
        times.append(1e3 * (time.perf_counter() - begin))
        if number + 1 in (options.freeze, options.steps):
            losses.append(held_out(net))
    if dist.get_rank() == 0:
        before, after = times[2 : options.freeze], times[options.freeze + 2 :]
        print(
            f"{options.kind} {options.library}: held-out loss {losses[0]:.4f} at the freeze, {losses[1]:.4f} at last; "
            f"median step {statistics.median(before):.1f} ms before it, {statistics.median(after):.1f} ms after it"
            f"{counted()}"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
