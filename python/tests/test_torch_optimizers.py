# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The PyTorch optimizers, on threads of this process."""

import copy
import pickle

import pytest
from ranks import on_ranks

import onebit

torch = pytest.importorskip("torch")
import onebit.torch  # noqa: E402

FREEZING = [onebit.torch.OneBitAdam, onebit.torch.OneBitLamb, onebit.torch.ZeroOneAdam]
KINDS = [onebit.torch.Adam, onebit.torch.Lamb, *FREEZING]


def model(seed=1, width=64):
    generator = torch.Generator().manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(20, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return net


def batch(rank, step, count=32):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(count, 20, generator=generator)
    return inputs, inputs[:, :1] * inputs[:, 1:2] + 0.5 * inputs[:, 2:3]


def loss_of(net, rank, step):
    inputs, targets = batch(rank, step)
    return torch.nn.functional.mse_loss(net(inputs), targets)


def train(comm, kind, steps, before_step=None, **options):
    """Returns the model, and the parameters' bytes after each step."""
    net = model()
    optimizer = kind(net.parameters(), communicator=comm, **options)
    history = []
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(net, comm.rank, step).backward()
        if before_step:
            before_step(step, optimizer)
        optimizer.step()
        history.append(b"".join(p.detach().numpy().tobytes() for p in net.parameters()))
    return net, history


def dense_rival(steps, size, lr_of_step=lambda step: 1e-2, max_grad_norm=0.0, **options):
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), **options)
    for step in range(steps):
        optimizer.zero_grad(set_to_none=False)
        for rank in range(size):
            (loss_of(net, rank, step) / size).backward()
        if max_grad_norm:
            torch.nn.utils.clip_grad_norm_(net.parameters(), max_grad_norm)
        optimizer.param_groups[0]["lr"] = lr_of_step(step)
        optimizer.step()
    return net


def held_out(net):
    with torch.no_grad():
        return float(sum(loss_of(net, 99, step) for step in range(20000, 20020))) / 20


def assert_close(one, other, **tolerance):
    for a, b in zip(one.parameters(), other.parameters()):
        torch.testing.assert_close(a, b, **{"rtol": 1e-4, "atol": 1e-5, **tolerance})


@pytest.mark.parametrize(
    "options", [{}, {"weight_decay": 0.1}, {"max_grad_norm": 0.5}, {"betas": (0.8, 0.99), "eps": 1e-4}]
)
def test_adam_is_adamw_on_the_mean_gradient(options):
    settings = {"lr": 1e-2, "weight_decay": 0.0, **options}
    rival = dense_rival(20, 2, **settings)
    net, _ = on_ranks(2, lambda comm: train(comm, onebit.torch.Adam, 20, **settings))[0]
    assert_close(net, rival)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_equal_after_every_step(kind):
    options = {"freeze_step": 5} if kind in FREEZING else {}
    histories = [history for _, history in on_ranks(2, lambda comm: train(comm, kind, 15, **options))]
    if kind is not onebit.torch.ZeroOneAdam:  # whose local steps let ranks drift
        assert histories[0] == histories[1]
    assert len(set(histories[0])) == 15


@pytest.mark.parametrize("kind", [onebit.torch.OneBitAdam, onebit.torch.ZeroOneAdam])
def test_one_bit_trains_as_adamw_does(kind):
    steps = 600
    rival = dense_rival(steps, 2, lr=1e-2, weight_decay=0.0)
    net, _ = on_ranks(2, lambda comm: train(comm, kind, steps, lr=1e-2, freeze_step=150))[0]
    assert held_out(net) - held_out(rival) < 0.03 * held_out(model())


def test_a_schedule_of_learning_rates():
    def schedule(step, optimizer):
        optimizer.param_groups[0]["lr"] = 1e-2 / (step + 1)

    rival = dense_rival(10, 2, lr_of_step=lambda step: 1e-2 / (step + 1), lr=1e-2, weight_decay=0.0)
    net, _ = on_ranks(2, lambda comm: train(comm, onebit.torch.Adam, 10, schedule, lr=1e-2))[0]
    assert_close(net, rival)


def test_torchs_scheduler():
    (comm,) = onebit.loopback(1)
    net = model()
    optimizer = onebit.torch.OneBitAdam(net.parameters(), lr=1.0, communicator=comm)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    for _ in range(3):
        loss_of(net, 0, 0).backward()
        optimizer.step()
        scheduler.step()
    assert abs(optimizer.param_groups[0]["lr"] - 1e-3) < 1e-9


def test_zero_grad_set_to_none_moves_gradients():
    def none(step, optimizer):
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad = parameter.grad.clone()

    one = on_ranks(2, lambda comm: train(comm, onebit.torch.OneBitAdam, 8, freeze_step=3)[1])[0]
    other = on_ranks(2, lambda comm: train(comm, onebit.torch.OneBitAdam, 8, none, freeze_step=3)[1])[0]
    assert one == other


def test_groups_and_add_param_group():
    def run(comm):
        net = model()
        optimizer = onebit.torch.Adam(net[0].parameters(), lr=1e-2, communicator=comm)
        optimizer.add_param_group({"params": net[2].parameters(), "lr": 0.0, "no_compress": True})
        last = [p.clone() for p in net[2].parameters()]
        first = [p.clone() for p in net[0].parameters()]
        loss_of(net, comm.rank, 0).backward()
        optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(last, net[2].parameters()))
        assert not any(torch.equal(a, b) for a, b in zip(first, net[0].parameters()))
        with pytest.raises(RuntimeError, match="after the first step"):
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(3))]})

    on_ranks(2, run)


def test_gradient_accumulation():
    def run(comm):
        net = model()
        optimizer = onebit.torch.Adam(net.parameters(), lr=1e-2, communicator=comm)
        for step in range(6):
            (loss_of(net, 2 * comm.rank, step) / 2).backward()
            (loss_of(net, 2 * comm.rank + 1, step) / 2).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return net

    assert_close(on_ranks(2, run)[0], dense_rival(6, 4, lr=1e-2, weight_decay=0.0))


def test_a_gradient_that_one_rank_lacks_counts_as_zero():
    def run(comm):
        used, unused = torch.nn.Parameter(torch.ones(600)), torch.nn.Parameter(torch.ones(600))
        optimizer = onebit.torch.Adam([used, unused], lr=0.1, betas=(0.0, 0.0), communicator=comm)
        for _ in range(3):
            used.grad, unused.grad = torch.ones(600), torch.ones(600) if comm.rank == 0 else None
            optimizer.step()
        return unused.detach().clone()

    with pytest.warns(UserWarning, match=r"1 parameters have no gradient .* parameter 1 of group 0") as caught:
        first, second = on_ranks(2, run)
    assert len(caught) == 1  # rank 1's first step
    assert torch.equal(first, second)
    torch.testing.assert_close(first, torch.full((600,), 0.7))


def test_frozen_and_empty_parameters_are_skipped():
    def run(comm):
        net = model()
        net[0].weight.requires_grad_(False)
        empty = torch.nn.Parameter(torch.empty(0, 5))
        before = net[0].weight.clone()
        optimizer = onebit.torch.OneBitAdam([empty, *net.parameters()], communicator=comm)
        loss_of(net, comm.rank, 0).backward()
        optimizer.step()
        assert torch.equal(net[0].weight, before)
        assert optimizer.info.count == sum(p.numel() for p in net.parameters()) - before.numel()
        net[0].weight.requires_grad_(True)
        with pytest.raises(RuntimeError, match="requires a gradient that did not"):
            optimizer.step()

    on_ranks(2, run)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_parameters_have_float32_masters(dtype):
    def run(comm):
        exact = torch.nn.Parameter(torch.ones(3000))
        small = torch.nn.Parameter(torch.ones(3000, dtype=dtype))
        pair = [onebit.torch.Adam([p], lr=1e-3, communicator=comm) for p in (exact, small)]
        for _ in range(20):  # steps that are too short for 16 bits
            for parameter, optimizer in zip((exact, small), pair):
                parameter.grad = torch.ones_like(parameter)
                optimizer.step()
        assert torch.equal(exact.detach().to(dtype), small.detach())
        return small.detach().float()

    first, second = on_ranks(2, run)
    assert torch.equal(first, second)
    assert abs(float(first[0]) - 0.98) < 0.01


def test_channels_last_and_gradients_of_another_layout():
    def run(comm):
        plain = torch.nn.Parameter(torch.randn(8, 4, 6, 6, generator=torch.Generator().manual_seed(3)))
        last = torch.nn.Parameter(plain.detach().clone(memory_format=torch.channels_last))
        optimizers = [onebit.torch.Adam([p], lr=0.1, communicator=comm) for p in (plain, last)]
        for step in range(3):
            gradient = torch.randn(8, 4, 6, 6, generator=torch.Generator().manual_seed(step))
            plain.grad = gradient
            last.grad = gradient.contiguous(memory_format=torch.channels_last if step else torch.contiguous_format)
            for optimizer in optimizers:
                optimizer.step()
        torch.testing.assert_close(plain, last)

    on_ranks(2, run)


def test_closure():
    def run(comm):
        net = model()
        optimizer = onebit.torch.OneBitAdam(net.parameters(), communicator=comm)

        def closure():
            optimizer.zero_grad()
            loss = loss_of(net, comm.rank, 0)
            loss.backward()
            return loss

        first = float(optimizer.step(closure))
        assert float(optimizer.step(closure)) < first

    on_ranks(2, run)


def test_what_one_rank_raises_ends_the_step_on_all():
    def run(comm):
        net = model()
        optimizer = onebit.torch.OneBitAdam(net.parameters(), communicator=comm)
        loss_of(net, comm.rank, 0).backward()
        optimizer.step()

        def closure():
            raise MemoryError("no more")

        if comm.rank == 1:
            with pytest.raises(MemoryError):
                optimizer.step(closure)
            optimizer.cancel_step("as before")
        else:
            with pytest.raises(onebit.Cancelled, match="rank 1.*MemoryError: no more"):
                optimizer.step()
            with pytest.raises(onebit.Cancelled, match="rank 1.*as before"):
                optimizer.step()
        optimizer.step()
        assert optimizer.info.steps == 2

    on_ranks(2, run)


def test_nonfinite_gradients_change_nothing_on_any_rank():
    def run(comm):
        net = model()
        optimizer = onebit.torch.OneBitAdam(net.parameters(), communicator=comm)
        loss_of(net, comm.rank, 0).backward()
        if comm.rank == 0:
            net[0].bias.grad[0] = float("nan")
        before = [p.clone() for p in net.parameters()]
        with pytest.raises(onebit.Nonfinite, match="rank 0"):
            optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(before, net.parameters()))

    on_ranks(2, run)


def test_parameters_that_differ_at_the_start():
    def run(comm):
        net = model(seed=comm.rank)
        optimizer = onebit.torch.OneBitAdam(net.parameters(), communicator=comm)
        with pytest.raises(onebit.Mismatch, match=r"4 of 4 parameters differ .*, first number 0 .*\(64, 20\)"):
            optimizer.step()

    on_ranks(3, run)


def test_freeze_by_hand_and_info():
    def run(comm):
        def freeze(step, optimizer):
            if step == 3:
                optimizer.freeze()
            if step == 5:
                assert optimizer.info.frozen and optimizer.info.compressed_rounds == 2

        train(comm, onebit.torch.OneBitAdam, 6, freeze, freeze_step="never")

    on_ranks(2, run)
    (comm,) = onebit.loopback(1)
    with pytest.raises(RuntimeError, match="first step"):
        onebit.torch.OneBitAdam(model().parameters(), communicator=comm).info


def test_a_moved_parameter_is_followed():
    def move(step, optimizer):
        for parameter in optimizer.param_groups[0]["params"] if step == 4 else ():
            parameter.data = parameter.data.clone()

    def history(before_step):
        return on_ranks(2, lambda comm: train(comm, onebit.torch.OneBitAdam, 8, before_step, freeze_step=3)[1])[0]

    assert history(move) == history(None)


@pytest.mark.parametrize("change", [lambda data: data.double(), lambda data: data.clone().t()])
def test_a_parameter_of_another_kind_is_not(change):
    (comm,) = onebit.loopback(1)
    parameter = torch.nn.Parameter(torch.ones(30, 30))
    optimizer = onebit.torch.OneBitAdam([parameter], communicator=comm)
    parameter.grad = torch.ones(30, 30)
    optimizer.step()
    parameter.data = change(parameter.data)
    with pytest.raises(RuntimeError, match="parameter 0 of group 0, .* another kind or layout"):
        optimizer.step()


def test_one_cycle_changes_betas():
    schedule = dict(max_lr=0.02, total_steps=20, base_momentum=0.7, max_momentum=0.9)

    def cycled(net, optimizer, backward):
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, **schedule)
        for step in range(20):
            optimizer.zero_grad()
            backward(net, step)
            optimizer.step()
            scheduler.step() if step < 19 else None
        return net

    def run(comm):
        net = model()
        optimizer = onebit.torch.Adam(net.parameters(), communicator=comm)
        return cycled(net, optimizer, lambda net, step: loss_of(net, comm.rank, step).backward())

    def both(net, step):
        for rank in range(2):
            (loss_of(net, rank, step) / 2).backward()

    rival = model()
    cycled(rival, torch.optim.AdamW(rival.parameters(), weight_decay=0.0), both)
    # torch corrects a bias as if beta1 had always been what it is now; so does onebit
    assert_close(on_ranks(2, run)[0], rival)


def test_a_frozen_optimizer_refuses_another_eps_on_every_rank():
    def run(comm):
        net = model()
        optimizer = onebit.torch.OneBitAdam(net.parameters(), communicator=comm, freeze_step=2)
        for step in range(4):
            optimizer.zero_grad()
            loss_of(net, comm.rank, step).backward()
            optimizer.step()
        optimizer.param_groups[0]["eps"] = 1e-3
        with pytest.raises(onebit.InvalidArgument if comm.rank == 0 else onebit.Error, match="eps"):
            optimizer.step()

    on_ranks(2, run)


@pytest.mark.skipif(not hasattr(torch.autograd.graph, "increment_version"), reason="this autograd can't be told")
def test_autograd_hears_of_changed_parameters():
    (comm,) = onebit.loopback(1)
    parameter = torch.nn.Parameter(torch.ones(100))
    loss = (parameter**2).sum()
    loss.backward(retain_graph=True)
    onebit.torch.Adam([parameter], communicator=comm).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_other_copies_than_deep_ones_are_refused():
    (comm,) = onebit.loopback(1)
    optimizer = onebit.torch.OneBitAdam(model().parameters(), communicator=comm)
    for duplicate in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="copy.deepcopy alone"):
            duplicate(optimizer)


@pytest.mark.parametrize(
    "parameters, options, error",
    [
        ([], {}, ValueError),
        (torch.zeros(3), {}, TypeError),
        ([torch.nn.Parameter(torch.zeros(3))], {"speed": 1}, TypeError),
        ([torch.nn.Parameter(torch.zeros(3))], {"freeze_step": "soon"}, onebit.InvalidArgument),
        ([torch.nn.Parameter(torch.zeros(3))], {"scale_group": "all"}, onebit.InvalidArgument),
    ],
)
def test_bad_settings(parameters, options, error):
    (comm,) = onebit.loopback(1)
    with pytest.raises(error):
        onebit.torch.OneBitAdam(parameters, communicator=comm, **options)


@pytest.mark.parametrize(
    "parameter, error, text",
    [
        (torch.zeros(3, dtype=torch.float64), TypeError, "float64; float32"),
        (torch.zeros(3, 4)[:, ::2], ValueError, "not dense"),
        (torch.zeros(3).requires_grad_(False), ValueError, "no parameter requires a gradient"),
    ],
)
def test_bad_parameters(parameter, error, text):
    (comm,) = onebit.loopback(1)
    parameter = torch.nn.Parameter(parameter, requires_grad=text != "no parameter requires a gradient")
    with pytest.raises(error, match=text):
        onebit.torch.OneBitAdam([parameter], communicator=comm).step()


def test_sparse_gradients_are_refused_on_all_ranks():
    def run(comm):
        table = torch.nn.Embedding(100, 8, sparse=comm.rank == 1)
        torch.nn.init.ones_(table.weight)
        optimizer = onebit.torch.OneBitAdam(table.parameters(), communicator=comm)
        table(torch.tensor([1, 5])).sum().backward()
        with pytest.raises(TypeError if comm.rank == 1 else onebit.Cancelled, match="sparse"):
            optimizer.step()

    on_ranks(2, run)


def test_a_forgotten_process_group():
    with pytest.raises(RuntimeError, match="init_process_group"):
        onebit.torch.OneBitAdam(model().parameters())


@pytest.mark.parametrize(
    "change, error, text",
    [
        (lambda p: torch.nn.Parameter(p.detach().double()), TypeError, "float64; float32"),
        (lambda p: torch.nn.Parameter(torch.ones(40, 60)[:, ::2]), ValueError, "not dense"),
        (lambda p: p.requires_grad_(False), ValueError, "no parameter requires a gradient"),
    ],
)
def test_a_first_step_that_one_rank_can_not_make_fails_on_all_at_once(change, error, text):
    def run(comm):
        parameter = torch.nn.Parameter(torch.ones(40, 30))
        parameter = change(parameter) if comm.rank == 1 else parameter
        optimizer = onebit.torch.OneBitAdam([parameter], communicator=comm)
        with pytest.raises(error if comm.rank == 1 else onebit.InvalidArgument, match=text) as caught:
            optimizer.step()
        assert comm.rank == 1 or f"rank 1: {error.__name__}: " in str(caught.value)

    on_ranks(3, run)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("codec", ["int8", "bfloat16"])
def test_a_codec_of_several_bits(kind, codec):
    dense = {onebit.torch.OneBitAdam: onebit.torch.Adam, onebit.torch.OneBitLamb: onebit.torch.Lamb}.get(kind)
    options = {"lr": 1e-2, "codec": codec}
    if kind not in (onebit.torch.Adam, onebit.torch.Lamb):
        options["freeze_step"] = 8

    def run(comm):
        net = model()
        optimizer = kind(net.parameters(), communicator=comm, **options)
        for step in range(30):
            optimizer.zero_grad()
            loss_of(net, comm.rank, step).backward()
            optimizer.step()
        return net, optimizer.info

    nets = on_ranks(2, run)
    assert_close(nets[0][0], nets[1][0], rtol=0, atol=0)
    info = nets[0][1]
    if "freeze_step" not in options:
        assert info.compressed_rounds == 30 and info.warmup_bytes_sent == 0
    assert info.compressed_bytes_sent > 0
    if dense is not None:
        rival = on_ranks(2, lambda comm: train(comm, dense, 30, lr=1e-2))[0][0]
        assert held_out(nets[0][0]) < 1.2 * held_out(rival)


class TestExact1d:
    """exact_1d: biases are averaged exactly, whatever becomes of the weights."""

    @staticmethod
    def groups_of(net, exact_by_hand):
        if not exact_by_hand:
            return [{"params": net.parameters(), "lr": 1e-2}]
        matrices = [p for p in net.parameters() if p.dim() > 1]
        vectors = [p for p in net.parameters() if p.dim() <= 1]
        return [{"params": matrices, "lr": 1e-2}, {"params": vectors, "lr": 1e-2, "no_compress": True}]

    def run(self, comm, exact_by_hand=False, steps=12, **options):
        net = model()
        groups = self.groups_of(net, exact_by_hand)
        optimizer = onebit.torch.OneBitAdam(groups, communicator=comm, freeze_step=4, **options)
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 / (1 + step)
                group["weight_decay"] = 0.1 if step > 6 else 0.0
            optimizer.zero_grad()
            loss_of(net, comm.rank, step).backward()
            optimizer.step()
        return net, optimizer

    def test_is_what_no_compress_groups_are(self):
        net, _ = on_ranks(2, lambda comm: self.run(comm, exact_1d=True))[0]
        by_hand, _ = on_ranks(2, lambda comm: self.run(comm, exact_by_hand=True))[0]
        other, _ = on_ranks(2, self.run)[0]
        assert_close(net, by_hand, rtol=0, atol=0)
        assert any(not torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters()))

    def test_states_go_on(self):
        def go_on(comm):
            net, optimizer = self.run(comm, exact_1d=True)
            state = optimizer.state_dict()
            other, loaded = self.run(comm, exact_1d=True, steps=1)
            loaded.load_state_dict(state)
            for each, its in ((net, optimizer), (other, loaded)):
                its.zero_grad()
                loss_of(each, comm.rank, 50).backward()
                its.step()
            assert_close(net, other, rtol=0, atol=0)
            _, without = self.run(comm, steps=1)
            with pytest.raises(onebit.Error, match="other buckets"):
                without.load_state_dict(state)

        on_ranks(2, go_on)

    def test_a_copy_keeps_it(self):
        def copied(comm):
            net, optimizer = self.run(comm, exact_1d=True)
            twin_net, twin = copy.deepcopy((net, optimizer))
            for each, its in ((net, optimizer), (twin_net, twin)):
                its.zero_grad()
                loss_of(each, comm.rank, 50).backward()
                its.step()
            assert_close(net, twin_net, rtol=0, atol=0)

        on_ranks(2, copied)

    def test_fewer_elements_than_ranks_are_compressed_with_the_rest(self):
        def run(comm):
            net = torch.nn.Linear(40, 1)
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter.fill_(0.1)
            optimizer = onebit.torch.OneBitAdam(net.parameters(), communicator=comm, exact_1d=True, freeze_step=1)
            for _ in range(3):
                optimizer.zero_grad()
                net(torch.ones(2, 40)).sum().backward()
                optimizer.step()
            return optimizer.info.frozen

        assert all(on_ranks(2, run))
