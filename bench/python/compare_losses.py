#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Held-out losses of a small transformer, by the way in which its gradients are averaged. The ranks are threads.

  python3 bench/python/compare_losses.py --way hook --seed 1 text.txt

dense: AdamW with exact averages; hook: AdamW with what ddp_hook does to a bucket; hook_plain: that with equalize=False;
onebit_adam: onebit.torch.OneBitAdam. Compression begins after --warmup steps.
"""

import argparse
import copy
import threading

import torch
from train_transformer import Transformer, held_out_losses, loss_of, parts_of, read_text

import onebit
import onebit.torch
from onebit.torch._average import Average

WAYS = ("dense", "hook", "hook_plain", "onebit_adam")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--way", choices=WAYS, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--warmup", type=int, default=80)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--batch", type=int, default=8, help="sequences of each rank")
    parser.add_argument("--lr", type=float, default=2e-3)
    return parser.parse_args()


class Hooked:
    """AdamW over one bucket: all gradients, the last parameter's first."""

    def __init__(self, comm, model, options):
        self.parameters = list(model.parameters())[::-1]
        self.bucket = torch.zeros(sum(p.numel() for p in self.parameters))
        self.average = Average(comm, self.bucket, options.way == "hook", {"algorithm": "pipelined"})
        self.optimizer = torch.optim.AdamW(self.parameters, lr=options.lr, weight_decay=0.0)
        self.exact_steps = options.steps if options.way == "dense" else options.warmup

    def step(self, step):
        torch.cat([p.grad.flatten() for p in self.parameters], out=self.bucket)
        self.average.run(self.bucket, exact=step < self.exact_steps)
        for parameter, values in zip(self.parameters, self.bucket.split([p.numel() for p in self.parameters])):
            parameter.grad.copy_(values.view_as(parameter))
        self.optimizer.step()


class OneBit:
    def __init__(self, comm, model, options):
        self.optimizer = onebit.torch.OneBitAdam(
            model.parameters(), lr=options.lr, freeze_step=options.warmup, communicator=comm
        )

    def step(self, _):
        self.optimizer.step()


def train(comm, model, text, options, losses):
    stepper = (OneBit if options.way == "onebit_adam" else Hooked)(comm, model, options)
    mine, held_out = parts_of(text, comm.rank, comm.size)
    generator = torch.Generator().manual_seed(1000 * options.seed + comm.rank)
    for step in range(options.steps):
        model.zero_grad()
        loss_of(model, mine, options.context, options.batch, generator).backward()
        stepper.step(step)
    if comm.rank == 0:
        losses.extend(held_out_losses(model, held_out, options.context))


def main():
    options = parse_arguments()
    torch.set_num_threads(1)
    text = read_text(options.text)
    torch.manual_seed(options.seed)
    model = Transformer(options.width, options.layers, options.context)
    losses = []
    threads = [
        threading.Thread(target=train, args=(comm, copy.deepcopy(model), text, options, losses))
        for comm in onebit.loopback(options.ranks)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{options.way}, seed {options.seed}: held-out loss {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    main()
