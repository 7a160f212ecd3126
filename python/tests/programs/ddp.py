# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel with ddp_hook, on two ranks or more. Prints "ok" on each rank."""

import io

import torch
import torch.distributed as dist
from delivery import gradients_of, require_delivered
from torch.nn.parallel import DistributedDataParallel

import onebit
import onebit.torch


def model():
    torch.manual_seed(1)
    linear = torch.nn.Linear
    return torch.nn.Sequential(linear(20, 64), torch.nn.Tanh(), linear(64, 64), linear(64, 1))


def loss_of(net, step):
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    inputs = torch.randn(32, 20, generator=generator)
    return torch.nn.functional.mse_loss(net(inputs), inputs[:, :1] * inputs[:, 1:2])


def train(steps, hook_state, dtype=torch.float32, bucket_cap_mb=0.005, nan_at=None, loaded=None):
    net = DistributedDataParallel(model().to(dtype), bucket_cap_mb=bucket_cap_mb)
    if hook_state:
        net.register_comm_hook(hook_state, onebit.torch.ddp_hook)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    if loaded:
        net.load_state_dict(loaded[0])
        optimizer.load_state_dict(loaded[1])
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(net if dtype is torch.float32 else lambda x: net(x.to(dtype)).float(), step)
        (loss * float("nan") if step == nan_at and dist.get_rank() == 0 else loss).backward()
        if step == nan_at:
            assert all(p.grad.isnan().all() for p in net.parameters())
            continue
        optimizer.step()
    return net, optimizer


def parameters_of(net):
    return torch.cat([p.detach().flatten().float() for p in net.parameters()])


def require_equal_on_ranks(net):
    mine = parameters_of(net)
    first = mine.clone()
    dist.broadcast(first, 0)
    assert torch.equal(mine, first)


def state(**options):
    return onebit.torch.HookState(algorithm="pipelined", **options)


def warm_up_is_exact():
    net, _ = train(10, state(warmup_steps=100))
    rival, _ = train(10, None)
    torch.testing.assert_close(parameters_of(net), parameters_of(rival), rtol=1e-4, atol=1e-5)


def compressed_steps_deliver_every_gradient():
    rival = DistributedDataParallel(model())
    loss_of(rival, 0).backward()
    exact = gradients_of(rival)
    net = DistributedDataParallel(model())
    net.register_comm_hook(state(warmup_steps=2), onebit.torch.ddp_hook)
    require_delivered(net, lambda: loss_of(net, 0).backward(), exact, 400, rtol=1e-4, atol=1e-6)


class TwoSizes(torch.nn.Module):
    """Parameters of one bucket, whose gradients are of very different sizes."""

    def __init__(self):
        super().__init__()
        self.large, self.small = (torch.nn.Parameter(torch.zeros(3000)) for _ in range(2))
        generator = torch.Generator().manual_seed(dist.get_rank())
        self.slopes = torch.randn(2, 3000, generator=generator)

    def forward(self):
        return 100 * (self.large * self.slopes[0]).sum() + (self.small * self.slopes[1]).sum()


def small_gradients_do_not_drown():
    errors = {}
    for equalize in (False, True):
        net = DistributedDataParallel(TwoSizes())
        net.register_comm_hook(state(warmup_steps=3, equalize=equalize), onebit.torch.ddp_hook)
        delivered = torch.zeros(3000)
        for step in range(103):
            net.zero_grad()
            net().backward()
            if step == 2:
                exact = net.module.small.grad.clone()
            if step > 2:
                delivered += net.module.small.grad / 100
        assert not torch.equal(net.module.small.grad, exact)
        errors[equalize] = float((delivered - exact).norm() / exact.norm())
        mine = net.module.large.grad.clone()
        dist.broadcast(mine, 0)
        assert torch.equal(mine, net.module.large.grad)
    assert errors[True] < 0.15 < 0.5 < errors[False], errors


def ranks_stay_equal():
    hook_state = state(warmup_steps=5)
    net, _ = train(20, hook_state)
    assert hook_state.steps == 20
    require_equal_on_ranks(net)


def finer_codes_need_no_warm_up():
    rival = DistributedDataParallel(model())
    loss_of(rival, 0).backward()
    exact = gradients_of(rival)
    for codec, error in {"bfloat16": 0.01, "int8": 0.03, "int4": 0.4, onebit.Codec.FP4: 0.4}.items():
        hook_state = state(codec=codec)
        assert hook_state.warmup_steps == 0
        net = DistributedDataParallel(model())
        net.register_comm_hook(hook_state, onebit.torch.ddp_hook)
        loss_of(net, 0).backward()
        apart = (gradients_of(net) - exact).norm() / exact.norm()
        assert 0 < apart < error, (codec, apart)
        require_equal_on_ranks(train(20, state(codec=codec))[0])
    assert state(codec="sign").warmup_steps == state(codec=onebit.Codec.SIGN).warmup_steps == 1000
    assert state(codec="int8", warmup_steps=7).warmup_steps == 7
    assert state(codec="int8", equalize=True).warmup_steps == 1000


def matrices_of_a_low_rank():
    assert onebit.torch.HookState(codec="powersgd").warmup_steps == 1000
    hook_state = onebit.torch.HookState(codec="powersgd", matrix_rank=1, warmup_steps=3, algorithm="flat")
    net, _ = train(20, hook_state)
    require_equal_on_ranks(net)
    assert hook_state.info.last_bytes_sent < hook_state.info.dense_bytes / 2, hook_state.info


def other_types_than_float32():
    net, _ = train(30, state(warmup_steps=5), dtype=torch.float64)
    require_equal_on_ranks(net)


def nonfinite_is_nonfinite_everywhere():
    net, _ = train(12, state(warmup_steps=3), nan_at=8)
    require_equal_on_ranks(net)
    assert parameters_of(net).isfinite().all()


def fewer_elements_than_ranks():
    net = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    net.register_comm_hook(onebit.torch.HookState(), onebit.torch.ddp_hook)
    net(torch.full((1, 1), 1.0 + dist.get_rank())).sum().backward()
    assert float(net.module.weight.grad) == (1 + dist.get_world_size()) / 2


def state_goes_through_a_file():
    hook_state = state(warmup_steps=3)
    train(8, hook_state)
    file = io.BytesIO()
    torch.save(hook_state.state_dict(), file)
    file.seek(0)
    loaded = state(warmup_steps=3)
    loaded.load_state_dict(torch.load(file))
    assert loaded.steps == 8
    train(3, loaded)
    assert loaded.steps == 11 and not loaded._loaded  # every bucket has its error


dist.init_process_group("gloo")
for check in (
    warm_up_is_exact,
    compressed_steps_deliver_every_gradient,
    small_gradients_do_not_drown,
    ranks_stay_equal,
    finer_codes_need_no_warm_up,
    matrices_of_a_low_rank,
    other_types_than_float32,
    nonfinite_is_nonfinite_everywhere,
    fewer_elements_than_ranks,
    state_goes_through_a_file,
):
    check()
print("ok", flush=True)
dist.destroy_process_group()
