#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network with 1-bit Adam, and prints what it has sent beside what dense float32 averages would.

  torchrun --nproc_per_node 2 train.py [--optimizer ZeroOneAdam] [--steps 1000]

Its warm-up ends after a fifth of the steps: so short a training would not settle by itself.
"""

import argparse
import time

import torch
import torch.distributed as dist

import onebit.torch

INPUTS = 64


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--optimizer", default="OneBitAdam", choices=["OneBitAdam", "OneBitLamb", "ZeroOneAdam"])
    parser.add_argument("--steps", type=int, default=1000, help="[%(default)s]")
    parser.add_argument("--lr", type=float, default=2e-3, help="[%(default)s]")
    return parser.parse_args()


def batch(generator, size=64):
    """A function that a network has to learn: products of neighbouring inputs, summed."""
    inputs = torch.randn(size, INPUTS, generator=generator)
    return inputs, (inputs[:, :-1] * inputs[:, 1:]).sum(dim=1, keepdim=True) / INPUTS**0.5


def main():
    options = parse_arguments()
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, 256),
        torch.nn.GELU(),
        torch.nn.Linear(256, 256),
        torch.nn.GELU(),
        torch.nn.Linear(256, 1),
    )
    kind = getattr(onebit.torch, options.optimizer)
    optimizer = kind(model.parameters(), lr=options.lr, freeze_step=options.steps // 5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    generator = torch.Generator().manual_seed(dist.get_rank())
    begin = time.perf_counter()
    for step in range(1, options.steps + 1):
        inputs, targets = batch(generator)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        schedule.step()
        if dist.get_rank() == 0 and step % (options.steps // 10) == 0:
            info = optimizer.info
            sent = (info.warmup_bytes_sent + info.compressed_bytes_sent) / 1e6
            dense = step * info.count * 8 * (1 - 1 / dist.get_world_size()) / 1e6
            print(f"step {step}: loss {loss.item():.4f}, sent {sent:.1f} MB (dense: {dense:.1f} MB), "
                  f"{'compressed' if info.frozen else 'exact'}, {time.perf_counter() - begin:.1f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
