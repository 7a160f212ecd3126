# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What is started and finished later: steps, progress of a whole communicator, callbacks."""

import gc
import weakref

import numpy as np
import pytest
from ranks import on_ranks

import onebit

COUNT = 3001


def values(rank, number=0, count=COUNT):
    return np.random.default_rng(100 * number + rank).standard_normal(count).astype(np.float32)


def progress(comm):
    while comm.progress() > 0:
        pass


class Training:
    def __init__(self, comm, kind="onebit_adam", **options):
        self.parameters = np.ones(COUNT, "f4")
        self.gradients = np.zeros(COUNT, "f4")
        tensors = [onebit.Tensor(self.parameters, self.gradients)]
        self.optimizer = onebit.Optimizer(comm, kind, tensors, 0.01, freeze_step=4, **options)


@pytest.mark.parametrize("how", ["test", "wait", "progress", "other ranks step"])
@pytest.mark.parametrize("kind", ["onebit_adam", "onebit_lamb", "zero_one_adam"])
def test_a_started_step_gives_the_bits_of_a_step(kind, how):
    def run(comm):
        started, stepped = Training(comm, kind), Training(comm, kind)
        for step in range(9):
            for each in (started, stepped):
                each.gradients[:] = values(comm.rank, step)
            stepped.optimizer.step()
            if how == "other ranks step" and comm.rank > 0:
                started.optimizer.step()
                continue
            started.optimizer.step_start()
            with pytest.raises(onebit.Busy, match="onebit_optimizer_step_wait"):
                started.optimizer.step()
            while how == "test" and not started.optimizer.step_test():
                pass
            if how == "progress":
                progress(comm)
            started.optimizer.step_wait()
            assert started.optimizer.step_test()  # nothing is started
        assert started.optimizer.info.steps == 9
        assert np.array_equal(started.parameters, stepped.parameters)

    on_ranks(2, run)


def test_a_started_step_that_fails():
    def run(comm):
        training = Training(comm)
        training.gradients[7] = np.nan if comm.rank == 1 else 1
        training.optimizer.step_start()
        progress(comm)
        with pytest.raises(onebit.Nonfinite, match="rank 1"):
            training.optimizer.step_wait()
        training.optimizer.step_wait()
        assert training.optimizer.info.skipped == 1

    on_ranks(2, run)


def test_progress_of_many():
    def run(comm):
        assert comm.progress() == 0
        reduces = [onebit.Allreduce(comm, COUNT, algorithm="flat") for _ in range(10)]
        results = [values(comm.rank, i) for i in range(10)]
        order = range(10) if comm.rank == 0 else reversed(range(10))
        for i in order:
            reduces[i].start(results[i])
        progress(comm)
        for allreduce in reduces:
            allreduce.wait()
        alone = [onebit.Allreduce(comm, COUNT, algorithm="flat").run(values(comm.rank, i)) for i in range(10)]
        assert np.array_equal(results, alone)
        return results[3].tobytes()

    first, second = on_ranks(2, run)
    assert first == second


@pytest.mark.parametrize("how", ["test", "wait", "progress"])
def test_callbacks_hear_once_how_it_ended(how):
    def run(comm):
        heard = []
        allreduce, training = onebit.Allreduce(comm, COUNT), Training(comm)
        allreduce.set_callback(lambda error: heard.append(("allreduce", error)))
        training.optimizer.set_callback(lambda error: heard.append(("step", error)))
        gc.collect()  # the library alone knows the functions' addresses
        training.gradients[:] = np.nan
        training.optimizer.step_start()
        allreduce.start(values(comm.rank))
        with pytest.raises(onebit.Busy):
            allreduce.set_callback(None)
        if how == "progress":
            progress(comm)
        elif how == "test":
            while not allreduce.test():
                pass
            with pytest.raises(onebit.Nonfinite):
                while not training.optimizer.step_test():
                    pass
        else:
            allreduce.wait()
            with pytest.raises(onebit.Nonfinite):
                training.optimizer.step_wait()
        assert sorted(name for name, _ in heard) == ["allreduce", "step"]
        assert dict(heard)["allreduce"] is None
        assert isinstance(dict(heard)["step"], onebit.Nonfinite) and "rank 0" in str(dict(heard)["step"])
        training.optimizer.step_wait()  # told already
        allreduce.set_callback(None)
        allreduce.start(values(comm.rank))
        allreduce.wait()
        assert len(heard) == 2

    on_ranks(2, run)


def test_a_callback_starts_its_operation_anew():
    def run(comm):
        allreduce = onebit.Allreduce(comm, COUNT, algorithm="dense")
        results = []

        def go_on(error):
            assert error is None
            if len(results) < 3:
                results.append(values(comm.rank, len(results)))
                allreduce.start(results[-1])

        allreduce.set_callback(go_on)
        go_on(None)
        progress(comm)
        allreduce.close()
        for number, result in enumerate(results):
            mean = (values(0, number) + values(1, number)) / 2
            np.testing.assert_allclose(result, mean, rtol=1e-5, atol=1e-6)

    on_ranks(2, run)


@pytest.mark.parametrize("how", ["test", "wait", "progress"])
def test_what_a_callback_raises_comes_out_of_the_call_that_made_it(how):
    def run(comm):
        allreduce = onebit.Allreduce(comm, COUNT)

        def fails(error):
            raise KeyError("the program's own")

        allreduce.set_callback(fails)
        allreduce.start(values(comm.rank))
        with pytest.raises(KeyError, match="the program's own"):
            if how == "progress":
                progress(comm)
            while not (allreduce.test() if how == "test" else allreduce.wait()):
                pass
        assert allreduce.info.calls == 1
        allreduce.set_callback(None)
        allreduce.run(values(comm.rank))

    on_ranks(2, run)


def test_a_callback_doesnt_keep_its_handle():
    (comm,) = onebit.loopback(1)
    allreduce = onebit.Allreduce(comm, COUNT)
    allreduce.set_callback(print)
    reference = weakref.ref(allreduce)
    del allreduce
    assert reference() is None
