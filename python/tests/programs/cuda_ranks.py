# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A model in a GPU's memory, on two ranks that share it: OneBitAdam, and DistributedDataParallel with ddp_hook.

    cuda_ranks.py tcp|nccl

Prints what connects the ranks, and "ok" on each.
"""

import os
import sys

import torch
import torch.distributed as dist
from delivery import gradients_of, require_delivered
from torch.nn.parallel import DistributedDataParallel

import onebit
import onebit.torch

DEVICE = os.environ["ONEBIT_TEST_DEVICE"]
TRANSPORT = sys.argv[1]


def model():
    torch.manual_seed(1)
    linear = torch.nn.Linear
    return torch.nn.Sequential(linear(20, 64), torch.nn.Tanh(), linear(64, 64), linear(64, 1)).to(DEVICE)


def loss_of(net, step, rank=None):
    generator = torch.Generator().manual_seed(100 * step + (dist.get_rank() if rank is None else rank))
    inputs = torch.randn(32, 20, generator=generator).to(DEVICE)
    return torch.nn.functional.mse_loss(net(inputs), inputs[:, :1] - 0.5 * inputs[:, 1:2].square())


def parameters_of(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()]).cpu()


def require_equal_on_ranks(net):
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, parameters_of(net).numpy().tobytes())
    assert len(set(parts)) == 1


def optimizers_learn_as_one():
    for bucket_size in (0, 2000) if TRANSPORT == "tcp" else (0,):
        net = model()
        optimizer = onebit.torch.OneBitAdam(
            net.parameters(), lr=1e-2, freeze_step=60, bucket_size=bucket_size, communicator=comm
        )
        before = float(loss_of(net, 5000, 7).detach())
        for step in range(200):
            optimizer.zero_grad()
            loss_of(net, step).backward()
            optimizer.step()
        require_equal_on_ranks(net)
        after = float(loss_of(net, 5000, 7).detach())
        assert after < 0.5 * before, (before, after)


def exact_steps_are_adamws():
    net, rival = model(), model()
    optimizer = onebit.torch.Adam(net.parameters(), lr=1e-2, weight_decay=0.1, communicator=comm)
    adamw = torch.optim.AdamW(rival.parameters(), lr=1e-2, weight_decay=0.1)
    for step in range(10):
        optimizer.zero_grad()
        loss_of(net, step).backward()
        optimizer.step()
        adamw.zero_grad()
        for rank in range(dist.get_world_size()):
            (loss_of(rival, step, rank) / dist.get_world_size()).backward()
        adamw.step()
    torch.testing.assert_close(parameters_of(net), parameters_of(rival), rtol=1e-3, atol=1e-4)


def the_hook_delivers_every_gradient():
    rival = model()
    for rank in range(dist.get_world_size()):
        (loss_of(rival, 0, rank) / dist.get_world_size()).backward()
    net = DistributedDataParallel(model(), bucket_cap_mb=0.005)
    net.register_comm_hook(onebit.torch.HookState(communicator=comm, warmup_steps=2), onebit.torch.ddp_hook)
    require_delivered(net, lambda: loss_of(net, 0).backward(), gradients_of(rival), 200, rtol=1e-3, atol=1e-5)


if TRANSPORT == "nccl":  # it takes ranks that share a GPU for hosts of their own
    os.environ.update(
        ONEBIT_GPU_TRANSPORT="nccl",
        NCCL_HOSTID=f"rank-{os.environ['RANK']}",
        NCCL_SOCKET_IFNAME="lo",
        NCCL_IB_DISABLE="1",
        NCCL_MNNVL_ENABLE="0",
    )
dist.init_process_group("gloo")
comm = onebit.torch.communicator()
if DEVICE == "cuda":
    print(comm.on_gpu().info, flush=True)
for check in (exact_steps_are_adamws, optimizers_learn_as_one, the_hook_delivers_every_gradient):
    check()
print("ok", flush=True)
dist.destroy_process_group()
