# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Communicators and optimizers on torch.distributed, under torchrun. Prints "ok" on each rank."""

import torch
import torch.distributed as dist

import onebit
import onebit.torch


def model(seed=1, dtype=torch.float32):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).to(dtype)


def loss_of(net, rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    inputs = torch.randn(32, 20, generator=generator)
    dtype = next(net.parameters()).dtype
    return torch.nn.functional.mse_loss(net(inputs.to(dtype)).float(), inputs[:, :1] * inputs[:, 1:2])


def values(net):
    return torch.cat([p.detach().flatten().float() for p in net.parameters()])


def require_equal_on_ranks(net):
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, values(net).numpy().tobytes())
    assert len(set(parts)) == 1


def train(net, optimizer, steps, begin=0):
    for step in range(begin, begin + steps):
        optimizer.zero_grad()
        loss_of(net, dist.get_rank(), step).backward()
        optimizer.step()
        require_equal_on_ranks(net)


def communicators():
    comm = onebit.torch.communicator()
    assert (comm.rank, comm.size) == (dist.get_rank(), dist.get_world_size())
    second = onebit.torch.communicator(dist.group.WORLD)
    for each in (comm, second):
        ones = torch.full((1000,), float(comm.rank))
        onebit.Allreduce(each, ones, algorithm="dense").run(ones)
        assert torch.equal(ones, torch.full((1000,), (comm.size - 1) / 2))


def groups():
    everyone = dist.get_world_size()
    last_first = dist.new_group([everyone - 1]), dist.new_group(list(range(everyone - 1)))
    mine = last_first[0] if dist.get_rank() == everyone - 1 else last_first[1]
    comm = onebit.torch.communicator(mine)
    assert (comm.rank, comm.size) == (dist.get_rank(mine), dist.get_world_size(mine))
    net = model(seed=dist.get_rank())
    optimizer = onebit.torch.OneBitAdam(net.parameters(), group=mine)
    loss_of(net, dist.get_rank(), 0).backward()
    optimizer.step()


def adam_is_adamw_on_the_mean_gradient():
    net, rival = model(), model()
    train(net, onebit.torch.Adam(net.parameters(), lr=1e-2, weight_decay=0.1), 10)
    adamw = torch.optim.AdamW(rival.parameters(), lr=1e-2, weight_decay=0.1)
    for step in range(10):
        adamw.zero_grad()
        for rank in range(dist.get_world_size()):
            (loss_of(rival, rank, step) / dist.get_world_size()).backward()
        adamw.step()
    torch.testing.assert_close(values(net), values(rival), rtol=1e-4, atol=1e-5)


def parameters_are_those_of_rank_0():
    for dtype in (torch.float32, torch.bfloat16):
        net = model(seed=dist.get_rank(), dtype=dtype)
        optimizer = onebit.torch.OneBitAdam(net[0].parameters(), freeze_step=3)
        optimizer.add_param_group({"params": net[2].parameters()})
        torch.testing.assert_close(values(net), values(model(seed=0, dtype=dtype)))
        train(net, optimizer, 6)
        assert optimizer.info.compressed_rounds == 3


def it_learns():
    net = model()
    optimizer = onebit.torch.OneBitAdam(net.parameters(), lr=1e-2, freeze_step=60)
    before = float(loss_of(net, 7, 5000))
    train(net, optimizer, 250)
    assert float(loss_of(net, 7, 5000)) < 0.4 * before


def one_checkpoint_for_all():
    net = model()
    optimizer = onebit.torch.OneBitAdam(net.parameters(), freeze_step=4)
    optimizer.consolidate_state_dict()
    assert optimizer.state_dict()["onebit"] == []  # before the first step
    train(net, optimizer, 7)
    for to in (0, dist.get_world_size() - 1):
        optimizer.consolidate_state_dict(to)
        state = [optimizer.state_dict()]
        mine = dist.get_world_size() if dist.get_rank() == to else 1
        assert len(state[0]["onebit"]) == len(optimizer.state_dict()["onebit"]) == mine
        dist.broadcast_object_list(state, to)
        other = model(seed=3)
        loaded = onebit.torch.OneBitAdam(other.parameters(), freeze_step=4)
        loaded.load_state_dict(state[0])
        begin = optimizer.info.steps
        train(net, optimizer, 3, begin)
        train(other, loaded, 3, begin)
        assert torch.equal(values(net), values(other))
        assert len(optimizer.state_dict()["onebit"]) == 1  # the states that were gathered are of an earlier step


def states_that_can_not_be_consolidated():
    comm = onebit.torch.communicator()
    net = model()
    optimizer = onebit.torch.OneBitAdam(net.parameters(), communicator=comm)
    train(net, optimizer, 1)
    last = comm.rank == comm.size - 1
    for to, kind, text in (
        (comm.size, ValueError, f"to={comm.size}"),
        (comm.size if last else 0, ValueError, f"to={comm.size}"),
        (comm.rank, onebit.Mismatch, "the same wanted"),
    ):
        try:
            optimizer.consolidate_state_dict(to)
        except kind as error:  # onebit's InvalidArgument is a ValueError, too
            assert text in str(error), error
        else:
            raise AssertionError(f"to={to}")
    optimizer.consolidate_state_dict()  # its ranks are the default group's


def an_allgather_that_fails():
    class Broken(Exception):
        pass

    def allgather(mine):
        if dist.get_rank() == 0:
            raise Broken("no luck")
        return [mine] * dist.get_world_size()

    try:
        onebit.from_bootstrap(dist.get_rank(), dist.get_world_size(), allgather, timeout=5)
    except onebit.Error as error:
        assert isinstance(error.__cause__, Broken) == (dist.get_rank() == 0), error
    else:
        raise AssertionError("it has not failed")


def an_optimizer_that_one_rank_can_not_make():
    last = dist.get_rank() == dist.get_world_size() - 1

    def require_failure(function, own):
        kind = own if last else onebit.InvalidArgument
        try:
            function()
        except kind as error:
            assert "no_such_option" in str(error) or "one of the params is str" in str(error), error
            assert last or f"rank {dist.get_world_size() - 1}: {own.__name__}: " in str(error), error
        else:
            raise AssertionError("it has not failed")

    net = model()
    options = {"no_such_option": 1} if last else {}
    require_failure(lambda: onebit.torch.OneBitAdam(net[0].parameters(), **options), TypeError)
    optimizer = onebit.torch.OneBitAdam(net[0].parameters())
    more = ["no tensor"] if last else net[2].parameters()
    require_failure(lambda: optimizer.add_param_group({"params": more}), TypeError)
    assert len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": net[2].parameters()})
    train(net, optimizer, 2)


dist.init_process_group("gloo")
alone = dist.get_world_size() == 1
in_company = [
    groups,
    an_allgather_that_fails,
    an_optimizer_that_one_rank_can_not_make,
    states_that_can_not_be_consolidated,
]
for check in (
    communicators,
    *([] if alone else in_company),
    adam_is_adamw_on_the_mean_gradient,
    parameters_are_those_of_rank_0,
    it_learns,
    one_checkpoint_for_all,
):
    check()
    dist.barrier()
print("ok", flush=True)
dist.destroy_process_group()
