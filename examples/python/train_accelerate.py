#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Trains with Hugging Face Accelerate; onebit averages the gradients. The lines marked "onebit" are those that differ.

  torchrun --nproc_per_node 2 train_accelerate.py

What each rank saves is its own: accelerator.save_state would keep rank 0's. See python/README.md, "Checkpoints".
"""

import argparse

import torch
from accelerate import Accelerator, InitProcessGroupKwargs

import onebit.torch  # onebit


def examples(count=2048, inputs=64):
    """A function that a network has to learn: products of neighbouring inputs, summed."""
    values = torch.randn(count, inputs, generator=torch.Generator().manual_seed(1))
    targets = (values[:, :-1] * values[:, 1:]).sum(dim=1, keepdim=True) / inputs**0.5
    return torch.utils.data.TensorDataset(values, targets)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10, help="[%(default)s]")
    options = parser.parse_args()
    # Said, for Accelerate would take MPI's processes on CPUs, where PyTorch is built with it, as Debian's is.
    backend = InitProcessGroupKwargs(backend="nccl" if torch.cuda.is_available() else "gloo")
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=[backend])
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 1))
    loader = torch.utils.data.DataLoader(examples(), batch_size=32, shuffle=True)
    model.to(accelerator.device)  # onebit: not prepared, for prepare() would put DistributedDataParallel around it
    loader = accelerator.prepare(loader)
    steps = options.epochs * len(loader)
    # onebit, in place of torch.optim.AdamW. A training of many steps needs no freeze_step
    optimizer = onebit.torch.OneBitAdam(model.parameters(), lr=2e-3, freeze_step=steps // 5)
    for epoch in range(options.epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
        accelerator.print(f"epoch {epoch}: loss {loss.item():.4f}")
    accelerator.print(f"{optimizer.info.compressed_rounds} of {steps} steps sent one bit for each element")
    accelerator.end_training()


if __name__ == "__main__":
    main()
