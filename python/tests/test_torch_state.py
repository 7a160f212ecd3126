# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""state_dict and load_state_dict of the PyTorch optimizers."""

import copy
import io

import pytest
from ranks import on_ranks

import onebit

torch = pytest.importorskip("torch")
import onebit.torch  # noqa: E402

# Each rank's is kept here.
pytestmark = pytest.mark.filterwarnings(r"ignore:this state_dict\(\) has rank 0's part")
FREEZING = [onebit.torch.OneBitAdam, onebit.torch.OneBitLamb, onebit.torch.ZeroOneAdam]
SHAPES = [(40, 30), (50,), (600,)]


class Training:
    def __init__(self, comm, kind, dtype=torch.float32, **options):
        self.comm = comm
        self.parameters = [torch.nn.Parameter(torch.ones(shape, dtype=dtype)) for shape in SHAPES]
        self.optimizer = kind(self.parameters, lr=1e-2, communicator=comm, **options)
        self.step = 0

    def go(self, steps):
        for _ in range(steps):
            generator = torch.Generator().manual_seed(1000 * self.step + self.comm.rank)
            for p in self.parameters:
                p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)
            self.optimizer.param_groups[0]["lr"] = 1e-2 / (1 + self.step)
            self.optimizer.step()
            self.step += 1
        return self

    def values(self):
        return torch.cat([p.detach().flatten().float() for p in self.parameters])


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=torch.__version__ >= "2")  # PyTorch 1.13's can't read floats


@pytest.mark.parametrize("kind", FREEZING)
@pytest.mark.parametrize("steps", [3, 11])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_continues_bit_for_bit(kind, steps, dtype):
    def run(comm):
        first = Training(comm, kind, dtype, freeze_step=6).go(steps)
        state = through_a_file(first.optimizer.state_dict())
        at_save = first.values()
        second = Training(comm, kind, dtype, freeze_step=6)
        second.optimizer.load_state_dict(state)
        assert torch.equal(second.values(), at_save)
        second.step = steps
        assert torch.equal(first.go(5).values(), second.go(5).values())
        assert second.optimizer.info.steps == steps + 5

    on_ranks(2, run)


def test_goes_back_in_the_same_optimizer():
    def run(comm):
        training = Training(comm, onebit.torch.OneBitAdam, freeze_step=6).go(8)
        state = training.optimizer.state_dict()
        once = training.go(3).values()
        training.optimizer.load_state_dict(state)
        training.step = 8
        assert torch.equal(training.go(3).values(), once)

    on_ranks(2, run)


def test_another_number_of_ranks():
    def save(comm):
        return Training(comm, onebit.torch.OneBitAdam, freeze_step=6).go(9).optimizer.state_dict()

    merged = through_a_file(onebit.torch.merge_state_dicts(on_ranks(2, save)[::-1]))

    def load(comm):
        training = Training(comm, onebit.torch.OneBitAdam, freeze_step=6)
        training.optimizer.load_state_dict(merged)
        training.step = 9
        training.go(4)
        assert training.optimizer.info.steps == 13
        return training.values()

    for size in (1, 2, 3):
        results = on_ranks(size, load)
        assert all(torch.equal(results[0], other) for other in results)


def test_before_the_first_step():
    def run(comm):
        state = Training(comm, onebit.torch.OneBitAdam).optimizer.state_dict()
        fresh = Training(comm, onebit.torch.OneBitAdam)
        fresh.optimizer.load_state_dict(state)
        assert torch.equal(fresh.go(2).values(), Training(comm, onebit.torch.OneBitAdam).go(2).values())

    on_ranks(2, run)


CHANGED = [{"betas": (0.7, 0.95), "eps": 1e-4, "weight_decay": 0.1}, {"betas": (0.8, 0.99), "weight_decay": 0.2}]


class InGroups(Training):
    """Two groups, whose settings are others than the optimizer was made with."""

    def __init__(self, comm, settings, no_compress=True):
        self.comm, self.step = comm, 0
        self.parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in SHAPES]
        groups = [{"params": self.parameters[:2]}, {"params": self.parameters[2:], "no_compress": no_compress}]
        self.optimizer = onebit.torch.OneBitAdam(groups, communicator=comm, freeze_step=6)
        for group, changed in zip(self.optimizer.param_groups, settings):
            group.update(changed)


@pytest.mark.parametrize("steps", [3, 9])
@pytest.mark.parametrize("already", [0, 2])
def test_settings_of_all_groups_survive(steps, already):
    def run(comm):
        first = InGroups(comm, CHANGED).go(steps)
        second = InGroups(comm, [{}, {}]).go(already)
        second.optimizer.load_state_dict(through_a_file(first.optimizer.state_dict()))
        for one, other in zip(first.optimizer.param_groups, second.optimizer.param_groups):
            assert dict(one, params=None) == dict(other, params=None)
        second.step = steps
        assert torch.equal(first.go(7).values(), second.go(7).values())

    on_ranks(2, run)


@pytest.mark.parametrize("no_compress", [True, False])
def test_settings_that_can_not_change_are_refused(no_compress):
    """eps of a frozen optimizer, and what was registered as never compressed."""

    def run(comm):
        state = InGroups(comm, CHANGED if no_compress else [{}, {}]).go(8).optimizer.state_dict()
        other = InGroups(comm, [{}, {}], no_compress).go(8)
        before, groups = other.values(), other.optimizer.state_dict()["param_groups"]
        with pytest.raises(onebit.Error, match="eps" if no_compress else "other buckets"):
            other.optimizer.load_state_dict(state)
        assert torch.equal(other.values(), before)
        assert other.optimizer.state_dict()["param_groups"] == groups
        other.go(1)

    on_ranks(2, run)


def deep_copy(training):
    """Of the parameters and of the optimizer."""
    twin = copy.copy(training)
    twin.parameters, twin.optimizer = copy.deepcopy((training.parameters, training.optimizer))
    return twin


@pytest.mark.parametrize("kind", [onebit.torch.Adam, *FREEZING])
@pytest.mark.parametrize("steps", [0, 3, 11])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_deep_copy_goes_on_by_itself(kind, steps, dtype):
    def run(comm):
        first = Training(comm, kind, dtype, **({} if kind is onebit.torch.Adam else {"freeze_step": 6})).go(steps)
        twin = deep_copy(first)
        twin_of_twin = deep_copy(twin)
        state = twin.optimizer.state_dict()
        at_copy = first.values()
        result = first.go(4).values()
        assert torch.equal(twin.values(), at_copy)
        for other in (twin, twin_of_twin):
            assert torch.equal(other.go(4).values(), result)
            assert other.optimizer.info.steps == steps + 4
        if steps:
            first.optimizer.load_state_dict(state)
            first.step = steps
            assert torch.equal(first.values(), at_copy)
            assert torch.equal(first.go(4).values(), result)

    on_ranks(2, run)


def test_a_copys_parameters_may_be_changed():
    def run(comm):
        first = Training(comm, onebit.torch.OneBitAdam, freeze_step=6).go(8)
        twin = deep_copy(first)
        with torch.no_grad():
            for each in (first, twin):
                each.parameters[1].fill_(7.0)
        assert torch.equal(first.go(3).values(), twin.go(3).values())

    on_ranks(2, run)


def test_what_does_not_fit_changes_nothing():
    def run(comm):
        training = Training(comm, onebit.torch.OneBitAdam, freeze_step=6).go(8)
        before = training.values()
        state = training.optimizer.state_dict()
        damaged = dict(state, onebit=[blob.clone() for blob in state["onebit"]])
        if comm.rank == 1:
            damaged["onebit"][0][-40:] += 1
        other = Training(comm, onebit.torch.ZeroOneAdam, freeze_step=6).go(8).optimizer.state_dict()
        for wrong in (damaged, other):
            with pytest.raises(onebit.BadState):
                training.optimizer.load_state_dict(wrong)
        assert torch.equal(training.values(), before)
        assert training.go(1).optimizer.info.steps == 9

    on_ranks(2, run)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_adamws_state_is_taken_over(layout):
    (comm,) = onebit.loopback(1)
    shape = (6, 5, 4, 4)
    ours, theirs = (torch.nn.Parameter(torch.ones(shape).to(memory_format=layout)) for _ in range(2))
    frozen = torch.nn.Parameter(torch.ones(7), requires_grad=False)
    adamw = torch.optim.AdamW([frozen, theirs], lr=0.05, betas=(0.8, 0.9), weight_decay=0.3)

    def go(parameter, optimizer, step):
        parameter.grad = torch.randn(shape, generator=torch.Generator().manual_seed(step))
        optimizer.step()

    for step in range(4):
        go(theirs, adamw, step)
    ours.data.copy_(theirs.data)
    adam = onebit.torch.Adam([frozen, ours], communicator=comm)
    adam.load_state_dict(adamw.state_dict())
    assert adam.info.steps == 4
    for step in range(4, 8):
        go(theirs, adamw, step)
        go(ours, adam, step)
        torch.testing.assert_close(ours, theirs)
    for name, values in adam.moments(ours).items():
        torch.testing.assert_close(values, adamw.state[theirs][name])
    with pytest.raises(ValueError, match="doesn't have this parameter"):
        adam.moments(frozen)


def test_other_optimizers_states_are_refused():
    (comm,) = onebit.loopback(1)
    training = Training(comm, onebit.torch.OneBitAdam)
    sgd = torch.optim.SGD(training.parameters, lr=1, momentum=0.9)
    with pytest.raises(ValueError, match="neither the state of a onebit optimizer nor of Adam"):
        training.optimizer.load_state_dict(sgd.state_dict())


def test_a_state_that_one_rank_can_not_load_is_refused_on_all_at_once():
    def run(comm):
        training = Training(comm, onebit.torch.OneBitAdam, freeze_step=6).go(3)
        state = training.optimizer.state_dict()
        if comm.rank == 1:
            del state["onebit"]
        with pytest.raises(ValueError if comm.rank == 1 else onebit.InvalidArgument, match="neither the state"):
            training.optimizer.load_state_dict(state)
        training.go(1)

    on_ranks(2, run)


def test_one_ranks_state_is_no_state_of_all():
    """What a framework saves that asks one rank alone: rank 0 is warned once, and every rank refuses to load it."""

    def run(comm):
        training = Training(comm, onebit.torch.OneBitAdam, freeze_step=6)
        training.optimizer.state_dict()  # nothing to lose yet
        training.go(8)
        training.optimizer.state_dict()
        return training.optimizer.state_dict(), training.values()

    with pytest.warns(UserWarning, match=r"consolidate_state_dict\(\) on every rank") as caught:
        (state, before), _ = on_ranks(2, run)
    assert len(caught) == 1

    def load(comm):
        training = Training(comm, onebit.torch.OneBitAdam, freeze_step=6)
        with pytest.raises(onebit.BadState, match="no blob of rank 1.*call consolidate_state_dict"):
            training.optimizer.load_state_dict(state)
        training.go(8)
        assert torch.equal(training.values(), before)  # nothing has changed

    on_ranks(2, load)


def test_without_a_process_group_states_are_not_consolidated():
    def run(comm):
        training = Training(comm, onebit.torch.OneBitAdam).go(1)
        with pytest.raises(RuntimeError, match="no process group .*merge_state_dicts"):
            training.optimizer.consolidate_state_dict()
        training.go(1)

    on_ranks(2, run)
