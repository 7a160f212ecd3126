#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Trains with Hugging Face Accelerate; onebit averages the gradients. The lines marked "onebit" are those that differ.

  torchrun --nproc_per_node 2 train_accelerate.py

A checkpoint has all ranks' states: any number of ranks can load it.
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
    parser.add_argument("--checkpoint", help="folder that is written at the end")
    parser.add_argument("--resume", help="folder to go on from")
    options = parser.parse_args()
    # Named here, because on CPUs Accelerate would take MPI's processes if PyTorch is built with MPI, as Debian's is.
    backend = InitProcessGroupKwargs(backend="nccl" if torch.cuda.is_available() else "gloo")
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=[backend])
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 1))
    loader = accelerator.prepare(torch.utils.data.DataLoader(examples(), batch_size=32, shuffle=True))
    # onebit: for evaluation, so that DistributedDataParallel is not put around the model
    model = accelerator.prepare_model(model, evaluation_mode=True)
    steps = options.epochs * len(loader)
    # onebit, in place of torch.optim.AdamW. A training of many steps needs no freeze_step
    optimizer = accelerator.prepare(onebit.torch.OneBitAdam(model.parameters(), lr=2e-3, freeze_step=steps // 5))
    accelerator.register_save_state_pre_hook(lambda *_: optimizer.optimizer.consolidate_state_dict())  # onebit
    if options.resume:
        accelerator.load_state(options.resume)
    for epoch in range(options.epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
        accelerator.print(f"epoch {epoch}: loss {loss.item():.4f}")
    info = optimizer.optimizer.info
    print(f"rank {accelerator.process_index}: loss {loss.item():.4f}; "
          f"{info.compressed_rounds} of {info.steps} steps sent one bit for each element")
    if options.checkpoint:
        accelerator.save_state(options.checkpoint)
    accelerator.end_training()


if __name__ == "__main__":
    main()
