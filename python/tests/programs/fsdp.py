# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""FSDP2 with fsdp_hook between two replicas of half the ranks each. Prints "ok" on each rank."""

import copy
import io

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import onebit
import onebit.torch


def model(mesh, seed=1, reduce_dtype=None):
    """Linear layers that are sharded one by one, and a scale that the root has itself."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(20, 65), torch.nn.Tanh(), torch.nn.Linear(65, 1))
    net.register_parameter("factor", torch.nn.Parameter(torch.ones(3)))
    policy = MixedPrecisionPolicy(reduce_dtype=reduce_dtype)
    for layer in (net[0], net[2], net):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    net.register_forward_hook(lambda net, _, output: output * net.factor.mean())
    return net


def hooked(net, **options):
    return onebit.torch.fsdp_hook(net, REPLICAS, algorithm="pipelined", **options)


def backward(net, step, factor=1.0):
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    inputs = torch.randn(32, 20, generator=generator)
    (factor * torch.nn.functional.mse_loss(net(inputs), inputs[:, :1] * inputs[:, 1:2])).backward()


def train(net, steps, begin=0):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step in range(begin, begin + steps):
        optimizer.zero_grad()
        backward(net, step)
        optimizer.step()
    return net


def shards(net, of=lambda parameter: parameter):
    return torch.cat([of(p).to_local().detach().flatten().float() for p in net.parameters()])


def gradients(net):
    return shards(net, lambda parameter: parameter.grad)


def require_equal_replicas(values):
    parts = [None] * dist.get_world_size(REPLICAS)
    dist.all_gather_object(parts, values.numpy().tobytes(), group=REPLICAS)
    assert len(set(parts)) == 1


def warm_up_is_fsdps_own_average():
    for reduce_dtype, tolerance in ((None, 1e-6), *((dtype, 1e-2) for dtype in SIXTEEN_BITS)):
        net, rival = model(SHARD, reduce_dtype=reduce_dtype), model(MESH)
        hooked(net)
        for step in range(3):
            for each in (net, rival):
                each.zero_grad()
                backward(each, step)
            torch.testing.assert_close(gradients(net), gradients(rival), rtol=tolerance, atol=tolerance)


def compressed_averages_deliver_every_gradient():
    rival, net = model(MESH), model(SHARD)
    backward(rival, 0)
    hook = hooked(net, warmup_steps=2)
    delivered = 0
    for step in range(202):
        net.zero_grad()
        backward(net, 0)
        delivered = delivered + gradients(net) / 200 if step >= 2 else 0
    assert hook.steps == 202
    assert not torch.equal(gradients(net), gradients(rival))
    assert (delivered - gradients(rival)).norm() < 0.15 * gradients(rival).norm()


def replicas_stay_equal():
    for reduce_dtype in (None, *SIXTEEN_BITS):
        net = model(SHARD, reduce_dtype=reduce_dtype)
        hooked(net, warmup_steps=3)
        require_equal_replicas(shards(train(net, 12)))


def accumulated_gradients_are_averaged_once():
    net, rival = model(SHARD), model(MESH)
    hook = hooked(net)
    for each in (net, rival):
        for part in range(3):
            each.set_requires_gradient_sync(part == 2)
            backward(each, part)
    assert hook.steps == 1
    torch.testing.assert_close(gradients(net), gradients(rival), rtol=1e-5, atol=1e-6)


def nonfinite_is_nonfinite_on_all_replicas():
    net = model(SHARD)
    hooked(net, warmup_steps=0)
    backward(net, 0, factor=float("nan") if dist.get_rank() == 0 else 1.0)
    values = gradients(net)
    require_equal_replicas(values.isnan())
    net.zero_grad()
    backward(net, 1)
    assert gradients(net).isfinite().all()


def state_goes_through_a_file():
    net = model(SHARD)
    hook = hooked(net, warmup_steps=3)
    train(net, 8)
    file = io.BytesIO()
    torch.save(hook.state_dict(), file)
    file.seek(0)
    other = model(SHARD)
    with torch.no_grad():
        for mine, theirs in zip(other.parameters(), net.parameters()):
            mine.copy_(theirs)
    loaded = hooked(other, warmup_steps=3)
    loaded.load_state_dict(torch.load(file))
    assert loaded.steps == 8
    assert loaded.state_dict().keys() == hook.state_dict().keys()  # though nothing has been averaged yet
    assert torch.equal(shards(train(net, 3, begin=8)), shards(train(other, 3, begin=8)))
    hook.load_state_dict(loaded.state_dict())  # back in the same one
    assert torch.equal(shards(train(net, 2, begin=11)), shards(train(other, 2, begin=11)))


def what_is_refused():
    for error, text, call in (
        (ValueError, "factor is sharded over a mesh with replicas", lambda: hooked(model(MESH))),
        (ValueError, "no module", lambda: hooked(torch.nn.Linear(2, 2))),
        (onebit.InvalidArgument, "warmup_steps=-1", lambda: hooked(model(SHARD), warmup_steps=-1)),
        (onebit.Mismatch, "differ between ranks", lambda: hooked(model(SHARD, seed=1 + dist.get_rank(REPLICAS)))),
        (ValueError, "parameter groups", lambda: hooked(model(SHARD)).load_state_dict({"1": (0, {})})),
        (TypeError, "state_dict", lambda: copy.copy(hooked(model(SHARD)))),
    ):
        try:
            call()
        except error as raised:
            assert text in str(raised), raised
        else:
            raise AssertionError(f"nothing was raised in place of {error}: {text}")


dist.init_process_group("gloo")
MESH = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))
SIXTEEN_BITS = (torch.bfloat16, torch.float16) if dist.get_world_size() == 2 else ()  # gloo can't scatter them
SHARD, REPLICAS = MESH["shard"], MESH["replicate"].get_group()
for check in (
    warm_up_is_fsdps_own_average,
    compressed_averages_deliver_every_gradient,
    replicas_stay_equal,
    accumulated_gradients_are_averaged_once,
    nonfinite_is_nonfinite_on_all_replicas,
    state_goes_through_a_file,
    what_is_refused,
):
    check()
    dist.barrier()
print("ok", flush=True)
dist.destroy_process_group()
