# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""An optimizer of onebit's as the client optimizer of DeepSpeed's engine, on two ranks or more. Prints "ok" on each."""

import sys

import deepspeed
import torch
import torch.distributed as dist

import onebit
import onebit.torch

STEPS, FREEZE = 24, 8


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))


def loss_of(net, step):
    inputs = torch.randn(32, 20, generator=torch.Generator().manual_seed(100 * step + dist.get_rank()))
    dtype = next(net.parameters()).dtype
    return torch.nn.functional.mse_loss(net(inputs.to(dtype)).float(), inputs[:, :1] * inputs[:, 1:2])


def values(net):
    return torch.cat([p.detach().flatten().float() for p in net.parameters()])


def engine_of(net, attach=True, kind=onebit.torch.OneBitAdam, bucket_size=0, **config):
    options = {} if kind is onebit.torch.Adam else {"freeze_step": FREEZE, "bucket_size": bucket_size}
    optimizer = kind(net.parameters(), lr=1e-2, max_grad_norm=1.0, **options)
    config = {"train_micro_batch_size_per_gpu": 32, "gradient_clipping": 0.0, **config}
    engine = deepspeed.initialize(model=net, optimizer=optimizer, config=config)[0]
    if attach:
        assert onebit.torch.attach_to_deepspeed(engine) is engine
    return engine, optimizer


def train(engine, begin=0, steps=STEPS):
    for step in range(begin, begin + steps):
        engine.backward(loss_of(engine, step))
        engine.step()


def plain(accumulated=1):
    """The same training without an engine."""
    net = model()
    optimizer = onebit.torch.OneBitAdam(net.parameters(), lr=1e-2, max_grad_norm=1.0, freeze_step=FREEZE)
    for step in range(STEPS):
        (loss_of(net, step) / accumulated).backward()
        if (step + 1) % accumulated == 0:
            optimizer.step()
            optimizer.zero_grad()
    return net


def require_equal_on_ranks(net):
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, values(net).numpy().tobytes())
    assert len(set(parts)) == 1


def the_engine_averages_nothing():
    """Its training is the plain one, bit for bit, so gradients reach the optimizer as each rank has them."""
    for accumulated in (1, 2):
        net = model()
        engine, optimizer = engine_of(net, gradient_accumulation_steps=accumulated)
        train(engine)
        assert optimizer.info.steps == STEPS // accumulated
        assert optimizer.info.compressed_rounds == STEPS // accumulated - FREEZE
        assert torch.equal(values(net), values(plain(accumulated)))


def without_attaching_the_engine_averages_too():
    net = model()
    engine, _ = engine_of(net, attach=False)
    train(engine)
    assert not torch.equal(values(net), values(plain()))


def in_bfloat16():
    net = model()
    engine, optimizer = engine_of(net, bf16={"enabled": True})
    train(engine)
    assert net[0].weight.dtype is torch.bfloat16
    assert optimizer.info.steps == STEPS + 1  # DeepSpeed makes one without gradients
    require_equal_on_ranks(net)
    assert 0.01 < (values(net) - values(model())).norm() / values(model()).norm() < 1


def checkpoints(folder):
    """Each rank has a part of the optimizer's state; DeepSpeed saves rank 0's state_dict() alone."""
    for name, config in (("float32", {}), ("bfloat16", {"bf16": {"enabled": True}})):
        net, other = model(), model()
        engine, optimizer = engine_of(net, **config)
        train(engine)
        optimizer.consolidate_state_dict()
        engine.save_checkpoint(f"{folder}/{name}")
        loaded, _ = engine_of(other, **config)
        loaded.load_checkpoint(f"{folder}/{name}")
        for each in (engine, loaded):
            train(each, STEPS, 3)
        assert torch.equal(values(net), values(other)), name


def refusals():
    for config, text in (
        ({"gradient_clipping": 1.0}, "gradient_clipping to 0.0"),
        ({"zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}, "zero_optimization.stage to 0"),
    ):
        engine, _ = engine_of(model(), attach=False, kind=onebit.torch.Adam, **config)
        require_refusal(engine, text)
    engine, _ = engine_of(model(), attach=False, bucket_size=1024, gradient_accumulation_steps=2)
    require_refusal(engine, "bucket_size")
    net = model()
    config = {"train_micro_batch_size_per_gpu": 32}
    engine = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1), config=config)[0]
    require_refusal(engine, "the engine's optimizer is SGD")


def require_refusal(engine, text):
    try:
        onebit.torch.attach_to_deepspeed(engine)
    except ValueError as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"not refused: {text}")


deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled
deepspeed.init_distributed("gloo", verbose=False)
for check in (
    the_engine_averages_nothing,
    without_attaching_the_engine_averages_too,
    in_bfloat16,
    lambda: checkpoints(sys.argv[1]),
    refusals,
):
    check()
    dist.barrier()
print("ok", flush=True)
dist.destroy_process_group()
