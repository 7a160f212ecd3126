#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Trains with Lightning, its gradients averaged by onebit. The lines marked "onebit" are those that differ.

  torchrun --nproc_per_node 2 train_lightning.py

Lightning calls the optimizer's consolidate_state_dict(): any number of ranks can load a checkpoint.
"""

import argparse
import os

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy

import onebit.torch  # onebit


class OneBitStrategy(DDPStrategy):  # onebit
    """The optimizer averages: no DistributedDataParallel is put around the model."""

    def _setup_model(self, model):
        return model


class Learner(lightning.LightningModule):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 1))

    def training_step(self, batch, _):
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.net(inputs), targets)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        # onebit, in place of torch.optim.AdamW. A training of many steps needs no freeze_step
        return onebit.torch.OneBitAdam(self.parameters(), lr=2e-3, freeze_step=self.steps // 5)


def examples(count=2048, inputs=64):
    """A function that a network has to learn: products of neighbouring inputs, summed."""
    values = torch.randn(count, inputs, generator=torch.Generator().manual_seed(1))
    targets = (values[:, :-1] * values[:, 1:]).sum(dim=1, keepdim=True) / inputs**0.5
    return torch.utils.data.TensorDataset(values, targets)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="[%(default)s]")
    parser.add_argument("--checkpoint", help="file that is written at the end")
    parser.add_argument("--resume", help="file to go on from")
    options = parser.parse_args()
    model = Learner(options.steps)
    trainer = lightning.Trainer(
        accelerator="auto",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        strategy=OneBitStrategy(),  # onebit
        max_steps=options.steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    loader = torch.utils.data.DataLoader(examples(), batch_size=32, shuffle=True)
    trainer.fit(model, loader, ckpt_path=options.resume)
    info = model.optimizers().optimizer.info
    print(f"rank {trainer.global_rank}: loss {trainer.callback_metrics.get('loss', float('nan')):.4f}; "
          f"{info.compressed_rounds} of {info.steps} steps sent one bit for each element")
    if options.checkpoint:
        trainer.save_checkpoint(options.checkpoint)


if __name__ == "__main__":
    main()
