# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Saves and loads by torch.distributed.checkpoint: "save FOLDER", then "load FOLDER" on any number of ranks.

Prints "ok" on each rank; a load on as many ranks also compares, bit for bit, with the training that went on. Where
ONEBIT_ALGORITHM is two_level it has been saved without.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import onebit
import onebit.torch

SAVED_AT, GOES_ON = 9, 4


def train(seed):
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(20, 65), torch.nn.Tanh(), torch.nn.Linear(65, 1))
    optimizer = onebit.torch.OneBitAdam(net.parameters(), lr=1e-2, freeze_step=5)
    return net, optimizer


def go(net, optimizer, begin, steps):
    for step in range(begin, begin + steps):
        generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
        inputs = torch.randn(32, 20, generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(inputs), inputs[:, :1] * inputs[:, 1:2]).backward()
        optimizer.step()


def values(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def save(folder):
    net, optimizer = train(seed=1)
    go(net, optimizer, 0, SAVED_AT)
    optimizer.param_groups[0]["weight_decay"] = 0.25
    state = {"model": net.state_dict(), "optimizer": onebit.torch.checkpoint_state(optimizer)}
    dcp.save(state, checkpoint_id=f"{folder}/checkpoint")
    go(net, optimizer, SAVED_AT, GOES_ON)
    torch.save(values(net), f"{folder}/later.{dist.get_world_size()}")


def load(folder):
    net, optimizer = train(seed=2)
    model = net.state_dict()
    dcp.load({"model": model}, checkpoint_id=f"{folder}/checkpoint")
    net.load_state_dict(model)
    onebit.torch.load_checkpoint(optimizer, f"{folder}/checkpoint")
    assert optimizer.info.steps == SAVED_AT
    assert optimizer.param_groups[0]["weight_decay"] == 0.25
    assert all(torch.equal(net.state_dict()[name], tensor) for name, tensor in model.items())
    go(net, optimizer, SAVED_AT, GOES_ON)
    later = Path(f"{folder}/later.{dist.get_world_size()}")
    on_same_levels = os.environ.get("ONEBIT_ALGORITHM") != "two_level"
    assert not later.exists() or torch.equal(values(net), torch.load(later)) == on_same_levels
    refused(optimizer, f"{folder}/checkpoint")


def refused(optimizer, path):
    last = dist.get_rank() == dist.get_world_size() - 1
    try:
        onebit.torch.load_checkpoint(optimizer, path, name="nobody" if last else "optimizer")
    except ValueError as error:
        assert "by the name of 'nobody'" in str(error) and last != isinstance(error, onebit.Error), error
    else:
        raise AssertionError("it has been loaded")


dist.init_process_group("gloo")
{"save": save, "load": load}[sys.argv[1]](sys.argv[2])
print("ok", flush=True)
dist.destroy_process_group()
