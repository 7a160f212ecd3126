#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer on text, by one way of exchanging gradients: steps per second, and the held-out loss.

  torchrun --nproc_per_node 2 bench/python/train_transformer.py --way onebit_adam text.txt
  tools/netlab run --mpi openmpi -- python3 bench/python/train_transformer.py --way ddp text.txt

The ranks are torchrun's, or mpirun's of Open MPI where there is no torchrun. The text is cut into one part for each rank; its
last tenth is held out. Rank 0 prints one line of JSON.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WAYS = ("ddp", "ddp_fp16", "ddp_bf16", "ddp_powersgd", "ddp_onebit", "adam", "onebit_adam", "onebit_lamb", "zero_one_adam")


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.attention = torch.nn.MultiheadAttention(width, heads, batch_first=True)
        self.feed = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x, mask):
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.feed(self.norms[1](x))


class Transformer(torch.nn.Module):
    """Of bytes."""

    def __init__(self, width, layers, context):
        super().__init__()
        self.embed = torch.nn.Embedding(256, width)
        self.place = torch.nn.Parameter(torch.zeros(context, width))
        self.blocks = torch.nn.ModuleList(Block(width, max(1, width // 64)) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, 256)
        self.register_buffer("mask", torch.full((context, context), float("-inf")).triu(1), persistent=False)

    def forward(self, text):
        x = self.embed(text) + self.place
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


def read_text(path):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


def parts_of(text, rank, ranks):
    """(what this rank learns from, the last tenth, which is held out)"""
    cut = len(text) // 10 * 9
    return text[:cut].chunk(ranks)[rank], text[cut:]


def loss_of(model, part, context, size, generator):
    """Of so many sequences of so many bytes, drawn from the part."""
    begins = torch.randint(len(part) - context - 1, (size,), generator=generator)
    both = torch.stack([part[begin : begin + context + 1] for begin in begins.tolist()]).long()
    return torch.nn.functional.cross_entropy(model(both[:, :-1]).flatten(0, 1), both[:, 1:].flatten())


def held_out_losses(model, held_out, context, samples=range(8)):
    """Of samples that are the same for all models."""
    with torch.no_grad():
        return [loss_of(model, held_out, context, 32, torch.Generator().manual_seed(i)).item() for i in samples]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--way", choices=WAYS, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--freeze-step", type=int, default=None, help="of 1-bit ways [they freeze by themselves]")
    parser.add_argument("--bucket-size", type=int, default=0,
                        help="of onebit's optimizers: exchanges of so many elements begin in the backward pass [0: none do]")
    parser.add_argument("--codec", default="sign", help="of onebit's optimizers and hook")
    parser.add_argument("--exact-1d", action="store_true", help="onebit's optimizers leave biases and norms exact")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8, help="sequences of each rank")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timed", type=int, default=20, help="last steps, which are timed")
    return parser.parse_args()


def begin_ranks():
    for name, of_mpirun in (("RANK", "OMPI_COMM_WORLD_RANK"), ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")):
        os.environ.setdefault(name, os.environ.get(of_mpirun, ""))
    os.environ.setdefault("MASTER_ADDR", "10.77.0.1")  # the lab's first host
    os.environ.setdefault("MASTER_PORT", "29511")
    dist.init_process_group("gloo")


def make_stepper(options, model):
    """(the model that is called, its optimizer)"""
    settings = {"lr": options.lr, "weight_decay": 0.0}
    if not options.way.startswith("ddp"):
        import onebit.torch

        settings.update(bucket_size=options.bucket_size, codec=options.codec, exact_1d=options.exact_1d)
        kinds = {"adam": "Adam", "onebit_adam": "OneBitAdam", "onebit_lamb": "OneBitLamb", "zero_one_adam": "ZeroOneAdam"}
        if options.freeze_step is not None and options.way != "adam":
            settings["freeze_step"] = options.freeze_step
        return model, getattr(onebit.torch, kinds[options.way])(model.parameters(), **settings)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=25)
    if options.way == "ddp_onebit":
        import onebit.torch

        state = onebit.torch.HookState(codec=options.codec, warmup_steps=options.freeze_step or 20)
        wrapped.register_comm_hook(state, onebit.torch.ddp_hook)
    elif options.way != "ddp":
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

        if options.way == "ddp_powersgd":
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=10)
            wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        else:
            wrapped.register_comm_hook(None, getattr(default_hooks, options.way[4:] + "_compress_hook"))
    return wrapped, torch.optim.AdamW(model.parameters(), **settings)


def main():
    options = parse_arguments()
    begin_ranks()
    torch.set_num_threads(1)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine, held_out = parts_of(read_text(options.text), rank, ranks)
    torch.manual_seed(options.seed)
    model = Transformer(options.width, options.layers, options.context)
    called, optimizer = make_stepper(options, model)
    generator = torch.Generator().manual_seed(1000 * options.seed + rank)

    times = []
    for _ in range(options.steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss_of(called, mine, options.context, options.batch, generator).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    model.eval()
    losses = held_out_losses(model, held_out, options.context)
    if rank == 0:
        timed = sorted(times[-options.timed :])
        count = sum(p.numel() for p in model.parameters())
        print(json.dumps({
            "way": options.way, "ranks": ranks, "parameters": count, "steps": options.steps, "seed": options.seed,
            "step_ms": round(1e3 * timed[len(timed) // 2], 2), "loss": round(sum(losses) / len(losses), 4),
        }))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
