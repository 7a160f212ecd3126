#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Trains with Hugging Face's Trainer; onebit averages the gradients. The lines marked "onebit" are those that differ.

  torchrun --nproc_per_node 2 train_trainer.py

A checkpoint has all ranks' states: any number of ranks can load it.
"""

import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import onebit.torch  # onebit


class OneBitTrainer(Trainer):  # onebit
    """The optimizer averages: no DistributedDataParallel is put around the model."""

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        self.accelerator.prepare_model = lambda model, **_: model.to(self.args.device)

    def create_optimizer(self, *_):
        if self.optimizer is None:
            self.optimizer = onebit.torch.OneBitAdam(
                self.model.parameters(),
                lr=self.args.learning_rate,
                freeze_step=self.args.max_steps // 5,  # a training of many steps needs none
                max_grad_norm=1.0,
            )
        return self.optimizer

    def _save_optimizer_and_scheduler(self, output_dir):  # called on every rank; rank 0 alone then saves
        self.optimizer.optimizer.consolidate_state_dict()
        super()._save_optimizer_and_scheduler(output_dir)


def sentences(count=512, length=32):
    """Numbers that count upwards from a random one."""
    begins = torch.randint(64, (count, 1), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": text, "labels": text} for text in (begins + torch.arange(length)) % 64]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="[%(default)s]")
    parser.add_argument("--checkpoints", help="folder that checkpoint-STEPS is written to at the end")
    parser.add_argument("--resume", help="checkpoint to go on from")
    options = parser.parse_args()
    shape = GPT2Config(vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=options.checkpoints or folder,
            max_steps=options.steps,
            per_device_train_batch_size=8,
            learning_rate=2e-3,
            logging_steps=max(1, options.steps // 5),
            report_to=[],
            disable_tqdm=True,
            save_strategy="steps" if options.checkpoints else "no",
            save_steps=options.steps,
            use_cpu=not torch.cuda.is_available(),
            ddp_backend="nccl" if torch.cuda.is_available() else "gloo",  # a Trainer would take MPI if present
            max_grad_norm=0,  # onebit: the optimizer clips the average, a Trainer would clip each rank's own
        )
        trainer = OneBitTrainer(GPT2LMHeadModel(shape), settings, train_dataset=sentences())
        result = trainer.train(resume_from_checkpoint=options.resume)
    info = trainer.optimizer.optimizer.info
    print(f"rank {settings.process_index}: loss {result.training_loss:.4f}; "
          f"{info.compressed_rounds} of {info.steps} steps sent one bit for each element")


if __name__ == "__main__":
    main()
