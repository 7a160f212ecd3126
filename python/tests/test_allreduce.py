# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
import gc
import os
import threading
import time

import numpy as np
import pytest
from ranks import on_ranks

import onebit

torch = pytest.importorskip("torch")
import onebit.torch  # noqa: E402

COUNT = 5000


def values(rank, count=COUNT):
    return np.random.default_rng(rank).standard_normal(count).astype(np.float32)


def mean(size, count=COUNT):
    return np.mean([values(rank, count).astype(np.float64) for rank in range(size)], axis=0)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_dense_average(size):
    def run(comm):
        result = np.empty(COUNT, np.float32)
        assert onebit.Allreduce(comm, COUNT, algorithm="dense").run(values(comm.rank), result) is result
        return result

    for result in on_ranks(size, run):
        np.testing.assert_allclose(result, mean(size), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["flat", "pipelined", onebit.Algorithm.RING])
def test_compressed_average_is_the_same_everywhere_and_delivers_its_error(algorithm):
    def run(comm):
        allreduce = onebit.Allreduce(comm, values(0), algorithm=algorithm)
        return sum(allreduce.run(values(comm.rank)).astype(np.float64) for _ in range(400)) / 400

    results = on_ranks(2, run)
    assert np.array_equal(results[0], results[1])
    assert np.abs(results[0] - mean(2)).mean() < 0.02


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_tensors_of_a_low_rank_are_delivered_whole(dtype):
    shapes = [(64, 10, 3, 3), (77,), (), (0, 5), (40, 50)]  # the first as 64 rows, the vector and the number exactly
    sizes = [int(np.prod(shape)) for shape in shapes]

    def gradients(rank):
        matrices = [(64, 90), (1, 77), (1, 1), (0, 5), (40, 50)]
        random = np.random.default_rng(3)  # the same factors on every rank, of different weight
        parts = [random.standard_normal((m, 2)) @ random.standard_normal((2, n)) * (rank + 1) for m, n in matrices]
        return np.concatenate([part.ravel() for part in parts]).astype(dtype)

    def run(comm):
        allreduce = onebit.Allreduce(
            comm, gradients(0), codec="powersgd", matrix_rank=2, shapes=shapes, algorithm="flat", threads=2
        )
        for _ in range(2):
            result = allreduce.run(gradients(comm.rank))
        return result, allreduce.info

    for result, info in on_ranks(2, run):
        assert result.size == sum(sizes)
        mean = gradients(0).astype(np.float64) * 1.5
        # What was rounded to 16 bits has full rank.
        np.testing.assert_allclose(result, mean, atol=1e-4 if dtype is np.float32 else 0.15)
        assert info.last_bytes_sent < info.dense_bytes / (4 if dtype is np.float32 else 2)


def test_stochastic_rounding_is_the_value_in_the_mean():
    def run(comm):
        allreduce = onebit.Allreduce(comm, COUNT, codec="int4", rounding="stochastic", algorithm="flat")
        total = np.zeros(COUNT)
        for _ in range(200):
            total += allreduce.run(values(comm.rank).copy())
            allreduce.reset()  # no error feedback
        return total / 200

    results = on_ranks(2, run)
    assert np.array_equal(results[0], results[1])
    assert np.abs(results[0] - mean(2)).mean() < 0.02


def test_an_arrays_own_shape_is_that_of_its_matrix():
    def run(comm):
        matrix = values(comm.rank, 6000).reshape(60, 100)
        allreduce = onebit.Allreduce(comm, matrix, codec="powersgd", algorithm="flat")
        flat = onebit.Allreduce(comm, 6000, codec="powersgd", algorithm="flat", shapes=[(60, 100)])
        vector = onebit.Allreduce(comm, 6000, codec="powersgd", algorithm="flat")
        assert vector.info.algorithm == onebit.Algorithm.DENSE  # nothing to be gained
        return np.array_equal(allreduce.run(matrix.copy()).ravel(), flat.run(matrix.copy().ravel()))

    assert on_ranks(2, run) == [True, True]


def test_levels_average_inside_groups_and_between_them():
    def run(comm):
        levels = [(comm.rank // 2, None), onebit.Level(0, "int8", {"error_type": "bfloat16"})]
        allreduce = onebit.Allreduce(comm, COUNT, codec="int8", levels=levels)
        result = allreduce.run(values(comm.rank).copy())
        infos = [allreduce.level(i) for i in range(3)]
        assert allreduce.info.algorithm == onebit.Algorithm.LEVELS
        assert [info.ranks for info in infos] == [2, 2, 1]
        assert [info.compressed for info in infos] == [0, 1, 1] and infos[1].codec == onebit.Codec.INT8
        assert [allreduce.level_error(i).size for i in range(3)] == [info.count for info in infos]
        assert not allreduce.level_error(0).any() and allreduce.level_error(1).any()
        with pytest.raises(onebit.InvalidArgument, match="level"):
            allreduce.level(3)
        return result

    for result in on_ranks(4, run):
        np.testing.assert_allclose(result, mean(4), atol=0.05)


def test_a_level_by_node():
    def run(comm):
        return onebit.Allreduce(comm, COUNT, levels=[("node", "int4")]).level(0)

    assert [info.ranks for info in on_ranks(2, run)] == [2, 2]


def test_the_quickest_codec_of_those_that_are_exact_enough():
    def run(comm):
        return onebit.Allreduce.choose_codec(comm, values(0), 0.02)

    assert on_ranks(3, run) == [onebit.Codec.INT8] * 3


def test_a_choice_that_one_rank_cannot_ask_for_fails_on_every_rank():
    def run(comm):
        wrong = [{"max_error": None}, {"max_error": 0.02, "no_such_option": 1}]
        for options in wrong if comm.rank == 1 else [{"max_error": 0.02}] * len(wrong):
            with pytest.raises((onebit.Error, TypeError)):
                onebit.Allreduce.choose_codec(comm, COUNT, **options)
        return onebit.Allreduce.choose_codec(comm, COUNT, 0.02)

    assert on_ranks(2, run) == [onebit.Codec.INT8] * 2


@pytest.mark.parametrize("algorithm", ["dense", "flat"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_sum(algorithm, size):
    def body(comm):
        total = onebit.Allreduce(comm, COUNT, algorithm=algorithm, op="sum").run(values(comm.rank))
        average = onebit.Allreduce(comm, COUNT, algorithm=algorithm).run(values(comm.rank))
        return total, average

    for total, average in on_ranks(size, body):
        np.testing.assert_array_equal(total, size * average)


def test_a_sum_that_overflows():
    def body(comm):
        huge = np.full(COUNT, 3e38, np.float32)
        with pytest.raises(onebit.Nonfinite, match="overflows"):
            onebit.Allreduce(comm, COUNT, algorithm="dense", op="sum").run(huge)
        return True

    assert on_ranks(2, body) == [True, True]


@pytest.mark.parametrize("algorithm", ["dense", "pipelined"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_16_bit_arrays_are_averaged_as_floats_and_rounded_once(dtype, algorithm):
    def body(comm):
        narrow = torch.from_numpy(values(comm.rank)).to(dtype)
        wide = narrow.float()
        onebit.Allreduce(comm, narrow, algorithm=algorithm, codec="int8").run(narrow)
        onebit.Allreduce(comm, wide, algorithm=algorithm, codec="int8").run(wide)
        return narrow, wide

    for narrow, wide in on_ranks(2, body):
        assert narrow.dtype is dtype and torch.equal(narrow, wide.to(dtype))


@pytest.mark.parametrize("codec", ["sign", "int8"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_a_hooks_gradients_of_other_types(dtype, codec):
    def body(comm):
        averages = []
        for kept in (dtype, torch.float32):
            state = onebit.torch.HookState(communicator=comm, codec=codec, warmup_steps=1, algorithm="pipelined")
            for step in range(4):
                gradients = torch.from_numpy(values(10 * step + comm.rank)).to(dtype).to(kept)
                state.average(gradients, [gradients], last=True)
            averages.append(gradients)
        return averages

    for narrow, wide in on_ranks(2, body):
        assert torch.equal(narrow, wide.to(dtype))


def test_what_a_hook_has_sent():
    def body(comm):
        state = onebit.torch.HookState(
            communicator=comm, codec="topk", kept=32, error_type="int8", warmup_steps=1, algorithm="pipelined"
        )
        parameters = [torch.zeros(5000), torch.zeros(3000)]
        infos = [state.info]
        for layout in ([[0], [1]], [[0], [1]], [[0, 1]]):  # DDP lays buckets out anew
            for bucket in layout:
                gradients = torch.ones(sum(parameters[i].numel() for i in bucket))
                state.average(gradients, [parameters[i] for i in bucket], last=bucket is layout[-1])
            infos.append(state.info)
        return infos

    for nothing, exact, compressed, merged in on_ranks(2, body):
        assert nothing == onebit.torch.HookInfo(0, 0, 0, 0, 0)
        assert exact.dense_bytes == compressed.dense_bytes == merged.dense_bytes == 4 * 8000
        assert exact.last_bytes_sent >= exact.dense_bytes
        assert 0 < compressed.last_bytes_sent < exact.last_bytes_sent / 50
        assert compressed.bytes_sent >= exact.bytes_sent + compressed.last_bytes_sent
        assert 8000 < compressed.state_bytes < 1.05 * 12000  # of a byte each, and a little
        assert merged.bytes_sent >= compressed.bytes_sent + merged.last_bytes_sent  # also of buckets that are no more


@pytest.mark.parametrize("dtype", ["float16", np.float16, np.dtype("float16"), torch.float16, onebit.Datatype.FLOAT16])
def test_the_type_of_arrays_by_any_name(dtype):
    def body(comm):
        allreduce = onebit.Allreduce(comm, COUNT, dtype=dtype, algorithm="dense")
        with pytest.raises(TypeError, match="send has elements of float32; float16 wanted"):
            allreduce.run(values(comm.rank))
        return allreduce.run(values(comm.rank).astype(np.float16))

    for result in on_ranks(2, body):
        np.testing.assert_allclose(result, mean(2), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", ["float32", onebit.Datatype.FLOAT32])
def test_a_type_that_is_asked_for_goes_before_an_arrays(dtype):
    (comm,) = onebit.loopback(1)
    narrow = values(0).astype(np.float16)
    assert onebit.Allreduce(comm, narrow, dtype=dtype).run(values(0)).dtype == np.float32


@pytest.mark.parametrize("dtype", ["float64", torch.int32, 7])
def test_a_type_that_arrays_cannot_have(dtype):
    (comm,) = onebit.loopback(1)
    with pytest.raises(onebit.InvalidArgument, match="dtype=.*: one of float32, float16, bfloat16"):
        onebit.Allreduce(comm, COUNT, dtype=dtype)


def test_start_test_and_wait():
    def run(comm):
        allreduce = onebit.Allreduce(comm, COUNT, algorithm="dense")
        polled, waited = values(comm.rank), values(comm.rank)
        allreduce.start(polled)
        with pytest.raises(onebit.Busy):
            allreduce.start(waited)
        while not allreduce.test():
            pass
        assert allreduce.test()  # nothing is started
        allreduce.start(waited)
        allreduce.wait()
        allreduce.wait()
        assert np.array_equal(polled, waited)
        return polled

    np.testing.assert_allclose(on_ranks(2, run)[0], mean(2), rtol=1e-5, atol=1e-6)


def test_buffers_live_as_long_as_the_operation():
    def run(comm):
        allreduce = onebit.Allreduce(comm, COUNT, algorithm="dense")
        result = np.empty(COUNT, np.float32)
        allreduce.start(values(comm.rank), result)  # nothing else refers to what is sent
        gc.collect()
        allreduce.wait()
        return result

    np.testing.assert_allclose(on_ranks(2, run)[0], mean(2), rtol=1e-5, atol=1e-6)


def test_a_warm_up_through_one_handle():
    def run(comm):
        allreduce = onebit.Allreduce(comm, COUNT, algorithm="pipelined")
        allreduce.set_algorithm("dense")
        exact = allreduce.run(values(comm.rank))
        assert allreduce.info.algorithm is onebit.Algorithm.DENSE
        allreduce.set_algorithm(onebit.Algorithm.PIPELINED)
        assert not np.array_equal(allreduce.run(values(comm.rank)), exact)
        with pytest.raises(onebit.InvalidArgument):
            allreduce.set_algorithm("auto")
        return exact

    np.testing.assert_allclose(on_ranks(2, run)[0], mean(2), rtol=1e-5, atol=1e-6)


def test_mask():
    mask = np.arange(COUNT) % 3 == 0

    def run(comm):
        allreduce = onebit.Allreduce(comm, COUNT, algorithm="flat")
        allreduce.set_mask(mask)
        result = allreduce.run(values(comm.rank))
        assert not result[~mask].any() and result[mask].all()
        allreduce.set_mask(None)
        assert allreduce.run(values(comm.rank)).all()
        with pytest.raises(onebit.InvalidArgument, match="bool"):
            allreduce.set_mask(np.ones(COUNT))

    on_ranks(2, run)


@pytest.mark.parametrize("how", ["bytes", "files"])
def test_state_continues_exactly(how, tmp_path):
    def run(comm):
        first = onebit.Allreduce(comm, COUNT, algorithm="flat")
        second = onebit.Allreduce(comm, COUNT, algorithm="flat")
        first.run(values(comm.rank))
        if how == "bytes":
            second.unpack_state(first.pack_state())
        else:
            first.save(tmp_path / "state")
            second.load(tmp_path / "state")
        assert np.array_equal(first.run(values(comm.rank)), second.run(values(comm.rank)))
        for one, other in zip(first.errors(), second.errors()):
            assert np.array_equal(one, other)
        first.reset()
        assert not first.errors()[0].any()
        with pytest.raises(onebit.BadState):
            first.unpack_state(b"no state at all")

    on_ranks(2, run)


def test_info():
    def run(comm):
        allreduce = onebit.Allreduce(comm, COUNT, algorithm="flat", threads=2)
        allreduce.run(values(comm.rank))
        return allreduce.info

    info = on_ranks(2, run)[1]
    assert (info.calls, info.threads, info.algorithm) == (1, 2, onebit.Algorithm.FLAT)
    assert info.transport == "loopback"
    assert info.reason


REFUSED = {
    "another size": (lambda: np.zeros(COUNT + 1, np.float32), onebit.InvalidArgument, "5001 elements; 5000 wanted"),
    "another type": (lambda: np.zeros(COUNT), TypeError, "<f8; float32 wanted"),
    "not contiguous": (lambda: np.zeros(2 * COUNT, np.float32)[::2], onebit.InvalidArgument, "not contiguous"),
    "no array": (lambda: [0.0] * COUNT, TypeError, "a list; an array or a tensor wanted"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_a_refused_buffer_is_refused_on_every_rank(case):
    make, error, text = REFUSED[case]

    def run(comm):
        allreduce = onebit.Allreduce(comm, COUNT, algorithm="flat")
        if comm.rank == 1:
            with pytest.raises(error, match=text):
                allreduce.run(make())
        else:
            with pytest.raises(onebit.InvalidArgument, match="rank 1"):
                allreduce.run(values(0))
        allreduce.run(values(comm.rank))  # goes on

    on_ranks(2, run)


def test_what_is_read_only_or_overlaps_is_refused():
    (comm,) = onebit.loopback(1)
    allreduce = onebit.Allreduce(comm, COUNT)
    fixed = values(0)
    fixed.flags.writeable = False
    with pytest.raises(onebit.InvalidArgument, match="read-only"):
        allreduce.run(fixed)
    assert allreduce.run(fixed, np.empty(COUNT, np.float32)) is not fixed
    both = np.zeros(COUNT + 1, np.float32)
    with pytest.raises(onebit.InvalidArgument, match="overlap"):
        allreduce.run(both[1:], both[:-1])


def test_nonfinite_on_one_rank():
    def run(comm):
        allreduce = onebit.Allreduce(comm, COUNT, algorithm="flat")
        sent = values(comm.rank)
        sent[7] = np.nan if comm.rank else 0
        with pytest.raises(onebit.Nonfinite, match="rank 1"):
            allreduce.run(sent)
        with pytest.raises(ArithmeticError):
            allreduce.run(sent)

    on_ranks(2, run)


def test_different_counts():
    def run(comm):
        with pytest.raises(onebit.Mismatch):
            onebit.Allreduce(comm, COUNT + comm.rank)

    on_ranks(2, run)


@pytest.mark.parametrize(
    "arguments, options, error",
    [
        ((0,), {}, onebit.InvalidArgument),
        ((-5,), {}, onebit.InvalidArgument),
        ((1.5,), {}, TypeError),
        ((COUNT,), {"algorithm": "quick"}, onebit.InvalidArgument),
        ((COUNT,), {"speed": 2}, TypeError),
        ((COUNT,), {"threads": -1}, onebit.InvalidArgument),
        ((COUNT,), {"threads": 1.5}, TypeError),
        ((COUNT,), {"memory": "disk"}, onebit.InvalidArgument),
        ((COUNT,), {"scale": 77}, onebit.InvalidArgument),
        ((COUNT,), {"group": "tensor"}, onebit.InvalidArgument),
        ((COUNT,), {"codec": "powersgd", "shapes": [(50, 99)]}, onebit.InvalidArgument),
        ((COUNT,), {"codec": "powersgd", "shapes": [(-50, -100)]}, onebit.InvalidArgument),
        ((COUNT,), {"codec": "powersgd", "shapes": [(1 << 40, 1 << 40)]}, onebit.InvalidArgument),
        ((COUNT,), {"codec": "powersgd", "shapes": []}, onebit.InvalidArgument),
        ((COUNT,), {"codec": "powersgd", "shapes": [50, 100]}, TypeError),
        ((COUNT,), {"codec": "powersgd", "shapes": [(50.5, 100)]}, TypeError),
        ((COUNT,), {"codec": "powersgd", "matrix_rank": 65}, onebit.InvalidArgument),
        ((COUNT,), {"shapes": [(50, 100)]}, onebit.InvalidArgument),
        ((COUNT,), {"num_shapes": 1}, TypeError),
        ((COUNT,), {"levels": [(0,), (0,), (0,)]}, onebit.InvalidArgument),
        ((COUNT,), {"levels": [("rack",)]}, TypeError),
        ((COUNT,), {"levels": [(-2,)]}, onebit.InvalidArgument),
        ((COUNT,), {"levels": [(2**32 + 5,)]}, onebit.InvalidArgument),
        ((COUNT,), {"levels": [onebit.Level(0, "int8", {"color": 1})]}, onebit.InvalidArgument),
        ((COUNT,), {"levels": [0]}, TypeError),
        ((COUNT,), {"levels": [(0, "int9")]}, onebit.InvalidArgument),
        ((COUNT,), {"levels": [onebit.Level(0, None, {"kept": 4})]}, onebit.InvalidArgument),
        ((COUNT,), {"levels": [onebit.Level(0, "topk", {"kept": 4000})]}, onebit.InvalidArgument),
        ((COUNT,), {"levels": [(0,)], "algorithm": "flat"}, onebit.InvalidArgument),
        ((COUNT,), {"levels": [(0,)], "codec": "powersgd"}, onebit.Unsupported),
        ((COUNT,), {"algorithm": "levels"}, onebit.InvalidArgument),
        ((COUNT,), {"rounding": "stochastic"}, onebit.InvalidArgument),  # a sign is not rounded
        ((COUNT,), {"codec": "int8", "rounding": "up"}, onebit.InvalidArgument),
    ],
)
def test_bad_settings(arguments, options, error):
    (comm,) = onebit.loopback(1)
    with pytest.raises(error):
        onebit.Allreduce(comm, *arguments, **options)


def test_closed():
    (comm,) = onebit.loopback(1)
    with onebit.Allreduce(comm, COUNT) as allreduce:
        assert not allreduce.closed
    assert allreduce.closed
    allreduce.close()
    with pytest.raises(onebit.InvalidHandle):
        allreduce.run(values(0))
    with pytest.raises(onebit.InvalidHandle):
        allreduce.info
    comm.close()
    with pytest.raises(onebit.InvalidHandle):
        onebit.Allreduce(comm, COUNT)


def test_garbage_collection_releases_also_what_is_in_flight():
    (comm,) = onebit.loopback(1)
    allreduce = onebit.Allreduce(comm, COUNT)
    allreduce.start(values(0))
    with pytest.raises(onebit.Busy):
        allreduce.close()
    del allreduce
    gc.collect()


def test_abort_ends_other_ranks_calls():
    both_created = threading.Barrier(2)

    def run(comm):
        allreduce = onebit.Allreduce(comm, COUNT, algorithm="flat")
        both_created.wait(20)
        if comm.rank == 1:
            comm.abort("out of memory")
        else:
            with pytest.raises(onebit.TransportError, match="out of memory"):
                allreduce.run(values(0))

    on_ranks(2, run)


def test_shared_memory_of_a_communicator():
    def run(comm):
        array = comm.empty(COUNT)
        array[:] = values(comm.rank)
        return onebit.Allreduce(comm, COUNT, algorithm="dense").run(array).copy()

    np.testing.assert_allclose(on_ranks(2, run)[0], mean(2), rtol=1e-5, atol=1e-6)


def test_a_forked_child_leaves_its_parents_handles_alone():
    (comm,) = onebit.loopback(1)
    allreduce = onebit.Allreduce(comm, COUNT)
    child = os.fork()
    if child == 0:
        try:
            allreduce.run(values(0))
            os._exit(1)
        except onebit.InvalidHandle:
            allreduce.close()
            comm.close()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    allreduce.run(values(0))


def test_one_thread_at_a_time():
    def run(comm):
        allreduce = onebit.Allreduce(comm, COUNT, algorithm="flat")
        if comm.rank == 0:
            waits = threading.Thread(target=allreduce.run, args=(values(0),))
            waits.start()  # for rank 1, which comes once this rank has seen Busy
            while waits.is_alive():
                try:
                    allreduce.info
                    time.sleep(0.001)
                except onebit.Busy:
                    break
            assert waits.is_alive()
            ready.set()
            waits.join()
        else:
            assert ready.wait(20)
            allreduce.run(values(1))

    ready = threading.Event()
    on_ranks(2, run)


@pytest.mark.parametrize("wrong", [{"algorithm": "quick"}, {"speed": 1}, {"memory": "disk"}, {"count": 0}])
def test_a_creation_that_python_refuses_on_one_rank_fails_on_all_at_once(wrong):
    def run(comm):
        options = dict(wrong) if comm.rank == 1 else {}
        with pytest.raises((ValueError, TypeError) if comm.rank == 1 else onebit.InvalidArgument) as caught:
            onebit.Allreduce(comm, options.pop("count", 1000), **options)
        assert comm.rank == 1 or "rank 1" in str(caught.value)
        onebit.Allreduce(comm, 1000).run(np.ones(1000, np.float32))

    on_ranks(2, run)
