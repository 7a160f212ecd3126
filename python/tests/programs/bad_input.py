# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Mistakes with process groups, on two ranks or more. Prints "ok" on each."""

import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import onebit
import onebit.torch


def parameters(*shapes):
    return [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]


def require(kind, text, function):
    try:
        function()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}: {text}")


def models_that_differ():
    last = dist.get_rank() == dist.get_world_size() - 1
    for mine, others, text in (
        ([(600,), (5,)], [(600,)], "rank 0 1 parameters of 600 elements"),
        ([(500,)], [(600,)], "has 1 parameters of 500 elements"),
        ([(30, 20)], [(20, 30)], "in other shapes or types"),
    ):
        shapes = mine if last else others
        require(onebit.Mismatch, text, lambda: onebit.torch.OneBitAdam(parameters(*shapes)))
    optimizer = onebit.torch.OneBitAdam(parameters((600,)))
    more = parameters((5,) if last else (6,))
    require(onebit.Mismatch, "different models", lambda: optimizer.add_param_group({"params": more}))
    assert len(optimizer.param_groups) == 1


def a_hook_registered_twice():
    net = DistributedDataParallel(torch.nn.Linear(20, 5))
    net.register_comm_hook(onebit.torch.HookState(), onebit.torch.ddp_hook)
    state = onebit.torch.HookState()
    require(RuntimeError, "register_comm_hook", lambda: net.register_comm_hook(state, onebit.torch.ddp_hook))
    net(torch.ones(3, 20)).sum().backward()


def a_peer_that_never_comes():
    """The last thing, for ranks have called for different numbers of communicators then."""
    begin = time.monotonic()
    if dist.get_rank() < dist.get_world_size() - 1:
        try:
            onebit.torch.communicator(timeout=1)
        except onebit.Error as error:
            assert "has not come within 1 s: has that rank begun?" in str(error.__cause__), error.__cause__
        else:
            raise AssertionError("a communicator without its last rank")
    dist.barrier()
    assert time.monotonic() - begin < 20


dist.init_process_group("gloo")
for check in (models_that_differ, a_hook_registered_twice):
    check()
    dist.barrier()
optimizer = onebit.torch.OneBitAdam(parameters((600,)))
optimizer.param_groups[0]["params"][0].grad = torch.ones(600)
optimizer.step()
a_peer_that_never_comes()
last = dist.get_rank() == dist.get_world_size() - 1
step = threading.Thread(target=optimizer.step)
if last:
    time.sleep(2)
else:
    step.start()
    step.join(0.5)
    assert step.is_alive()  # waits for the last rank
dist.destroy_process_group()
if last:
    step.start()
step.join()  # its ranks talk by themselves
assert optimizer.info.steps == 2
for function in (
    onebit.torch.communicator,
    lambda: onebit.torch.OneBitAdam(parameters((600,))),
    onebit.torch.HookState,
    optimizer.consolidate_state_dict,
):
    require(RuntimeError, "init_process_group", function)
print("ok", flush=True)
