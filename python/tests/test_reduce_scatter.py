# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""ReduceScatter and AllGather. (What they share with Allreduce in Python is tested there, too.)"""

import gc
import shutil
import threading

import numpy as np
import pytest
from ranks import MPIRUN, mpirun, on_ranks, run_together
from test_bad_input import InGpuMemory

import onebit

COUNT = 4800
UNEQUAL = {1: [4800], 2: [4799, 1], 3: [1000, 0, 3800]}
KINDS = [onebit.ReduceScatter, onebit.AllGather]
CODECS = ["sign", "int8", "int4", "fp4", "bfloat16", "float16", "ternary", "int2", "means", "topk", "randomk"]


def values(rank, count=COUNT):
    return np.random.default_rng(rank).standard_normal(count).astype(np.float32)


def mean(size, count=COUNT):
    return np.mean([values(rank, count).astype(np.float64) for rank in range(size)], axis=0)


def arrays(collective, rank):
    """What a rank sends, and where it receives."""
    if isinstance(collective, onebit.ReduceScatter):
        return values(rank), np.empty(COUNT, np.float32)[collective.shard]
    return values(rank)[collective.shard], np.empty(COUNT, np.float32)


@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_both_halves_of_an_exact_average(size, unequal):
    counts = UNEQUAL[size] if unequal else None

    def run(comm):
        reduce_scatter = onebit.ReduceScatter(comm, COUNT, counts=counts, algorithm="dense")
        all_gather = onebit.AllGather(comm, COUNT, counts=counts, algorithm="dense")
        begin = sum(counts[: comm.rank]) if counts else COUNT // size * comm.rank
        assert reduce_scatter.shard == all_gather.shard
        assert reduce_scatter.shard == slice(begin, begin + (counts[comm.rank] if counts else COUNT // size))
        shard = np.empty(COUNT, np.float32)[reduce_scatter.shard]
        assert reduce_scatter.run(values(comm.rank), shard) is shard
        np.testing.assert_allclose(shard, mean(size)[reduce_scatter.shard], rtol=1e-5, atol=1e-6)
        whole = np.empty(COUNT, np.float32)
        assert all_gather.run(shard, whole) is whole
        assert np.array_equal(whole[all_gather.shard], shard)
        return whole

    results = on_ranks(size, run)
    np.testing.assert_allclose(results[0], mean(size), rtol=1e-5, atol=1e-6)
    assert all(np.array_equal(result, results[0]) for result in results)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("in_place", [False, True])
def test_compressed_halves_are_an_allreduce_to_the_bit(codec, in_place):
    def run(comm):
        allreduce = onebit.Allreduce(comm, COUNT, algorithm="pipelined", codec=codec)
        reduce_scatter = onebit.ReduceScatter(comm, COUNT, algorithm="pipelined", codec=codec)
        all_gather = onebit.AllGather(comm, values(0), algorithm="pipelined", codec=codec)
        for step in range(5):
            sent = values(100 * step + comm.rank)
            expected = allreduce.run(sent, np.empty_like(sent))
            whole = sent if in_place else np.empty_like(sent)
            shard = whole[reduce_scatter.shard] if in_place else np.empty_like(sent[reduce_scatter.shard])
            all_gather.run(reduce_scatter.run(sent, shard), whole)
            assert np.array_equal(whole, expected)
        worker, server, begin = allreduce.errors()
        assert np.array_equal(reduce_scatter.error(), worker)
        assert np.array_equal(all_gather.error(), server) and all_gather.shard.start == begin

    on_ranks(3, run)


@pytest.mark.parametrize("counts", [None, UNEQUAL[3]])
@pytest.mark.parametrize("kind", KINDS)
def test_error_feedback_delivers_what_a_message_can_not_express(kind, counts):
    def run(comm):
        collective = kind(comm, COUNT, counts=counts, algorithm="pipelined")
        send, recv = arrays(collective, comm.rank)
        delivered = sum(collective.run(send, recv).astype(np.float64) for _ in range(400)) / 400
        return collective.shard, delivered

    results = on_ranks(3, run)
    whole = mean(3)
    if kind is onebit.AllGather:  # each rank's own values
        whole = np.concatenate([values(rank)[shard] for rank, (shard, _) in enumerate(results)])
    for shard, delivered in results:
        expected = whole if kind is onebit.AllGather else whole[shard]
        assert np.abs(delivered - expected).sum() <= 0.02 * len(delivered)


def test_sum():
    def run(comm):
        total = onebit.ReduceScatter(comm, COUNT, algorithm="dense", op="sum")
        average = onebit.ReduceScatter(comm, COUNT, algorithm="dense")
        assert np.array_equal(total.run(*arrays(total, comm.rank)), 2 * average.run(*arrays(average, comm.rank)))
        with pytest.raises(onebit.InvalidArgument, match="op"):
            onebit.AllGather(comm, COUNT, op="sum")

    on_ranks(2, run)


@pytest.mark.parametrize("kind", KINDS)
def test_start_test_and_wait(kind):
    def run(comm):
        collective = kind(comm, COUNT, algorithm="pipelined")
        other = kind(comm, COUNT, algorithm="pipelined")
        send, polled = arrays(collective, comm.rank)
        waited, moved = np.empty_like(polled), np.empty_like(polled)
        collective.start(send, polled)
        with pytest.raises(onebit.Busy):
            collective.start(send, polled)
        while not collective.test():
            pass
        assert collective.test()  # nothing is started
        other.start(send.copy(), waited)  # nothing else refers to what is sent
        gc.collect()
        other.wait()
        other.wait()
        assert np.array_equal(polled, waited)
        collective.start(send, polled)
        other.start(send, moved)
        while comm.progress():
            pass
        assert collective.test() and other.test()
        assert np.array_equal(polled, moved)

    on_ranks(2, run)


@pytest.mark.parametrize("kind", KINDS)
def test_a_callback_starts_the_next_operation(kind):
    def run(comm):
        collective = kind(comm, COUNT, algorithm="dense")
        send, recv = arrays(collective, comm.rank)
        heard = []

        def finished(error):
            heard.append(error)
            if len(heard) < 3:
                collective.start(send, recv)

        collective.set_callback(finished)
        collective.start(send, recv)
        while comm.progress():
            pass
        assert heard == [None] * 3 and collective.info.calls == 3
        collective.set_callback(None)
        collective.run(send, recv)
        assert len(heard) == 3

    on_ranks(2, run)


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_up_through_one_handle(kind):
    def run(comm):
        collective = kind(comm, COUNT, algorithm="pipelined")
        send, recv = arrays(collective, comm.rank)
        collective.set_algorithm("dense")
        exact = collective.run(send, recv).copy()
        assert collective.info.algorithm is onebit.Algorithm.DENSE
        assert not collective.error().any()
        collective.set_algorithm(onebit.Algorithm.PIPELINED)
        assert not np.array_equal(collective.run(send, recv), exact)
        assert collective.error().any()
        for refused in ("auto", "flat", "ring"):
            with pytest.raises(onebit.InvalidArgument):
                collective.set_algorithm(refused)

    on_ranks(2, run)


@pytest.mark.parametrize("how", ["bytes", "files"])
@pytest.mark.parametrize("kind", KINDS)
def test_state_continues_exactly(kind, how, tmp_path):
    def run(comm):
        first = kind(comm, COUNT, algorithm="pipelined")
        second = kind(comm, COUNT, algorithm="pipelined")
        send, recv = arrays(first, comm.rank)
        first.run(send, recv)
        if how == "bytes":
            second.unpack_state(first.pack_state())
        else:
            first.save(tmp_path / "state")
            second.load(tmp_path / "state")
        assert np.array_equal(first.run(send, recv), second.run(send, np.empty_like(recv)))
        assert np.array_equal(first.error(), second.error()) and first.error().any()
        assert first.error().size == send.size
        for other in (
            kind(comm, COUNT, algorithm="pipelined", codec="int8"),
            kind(comm, COUNT, counts=UNEQUAL[2], algorithm="pipelined"),
            [one for one in KINDS if one is not kind][0](comm, COUNT, algorithm="pipelined"),
        ):
            with pytest.raises(onebit.BadState):
                first.unpack_state(other.pack_state())
        first.reset()
        assert not first.error().any()
        with pytest.raises(onebit.BadState):
            first.unpack_state(b"no state at all")

    on_ranks(2, run)


@pytest.mark.parametrize("kind", KINDS)
def test_info(kind):
    def run(comm):
        collective = kind(comm, COUNT, counts=UNEQUAL[2], algorithm="pipelined", threads=2)
        collective.run(*arrays(collective, comm.rank))
        return collective.info

    for rank, info in enumerate(on_ranks(2, run)):
        assert isinstance(info, onebit.ShardInfo)
        assert (info.shard_begin, info.shard_count) == ((0, 4799), (4799, 1))[rank]
        assert (info.calls, info.threads, info.algorithm) == (1, 2, onebit.Algorithm.PIPELINED)
        others = UNEQUAL[2][1 - rank] if kind is onebit.ReduceScatter else UNEQUAL[2][rank]
        assert info.dense_bytes == 4 * others
        assert info.transport == "loopback"
        assert info.reason


def test_far_fewer_bytes():
    def run(comm):
        collective = onebit.ReduceScatter(comm, 2 << 20, algorithm="pipelined")
        collective.run(values(comm.rank, 2 << 20), np.empty(1 << 20, np.float32))
        return collective.info

    for info in on_ranks(2, run):
        assert info.dense_bytes > 20 * info.last_bytes_sent > 0


def test_tensors():
    torch = pytest.importorskip("torch")

    def run(comm):
        counts = [COUNT, 0]
        reduce_scatter = onebit.ReduceScatter(comm, COUNT, counts=counts, algorithm="dense")
        all_gather = onebit.AllGather(comm, torch.empty(60, 80), counts=counts, algorithm="dense")
        shard = torch.empty(counts[comm.rank])  # one of no elements has no address
        reduce_scatter.run(torch.from_numpy(values(comm.rank)), shard)
        whole = all_gather.run(shard, torch.empty(60, 80))
        np.testing.assert_allclose(whole.flatten().numpy(), mean(2), rtol=1e-5, atol=1e-6)

    on_ranks(2, run)


# What is wrong with rank 1's send, of as many elements, or with its recv.
REFUSED = {
    "another size": (lambda n: np.zeros(n + 1, np.float32), onebit.InvalidArgument, "elements; [0-9]* wanted"),
    "another type": (lambda n: np.zeros(n), TypeError, "<f8; float32 wanted"),
    "not contiguous": (lambda n: np.zeros(2 * n, np.float32)[::2], onebit.InvalidArgument, "not contiguous"),
    "no array": (lambda n: [0.0] * n, TypeError, "a list; an array or a tensor wanted"),
    "another memory": (lambda n: InGpuMemory(), onebit.InvalidArgument, "300 elements|cuda memory"),
}


@pytest.mark.parametrize("which", ["send", "recv"])
@pytest.mark.parametrize("case", list(REFUSED))
@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_buffer_is_refused_on_every_rank(kind, case, which):
    make, error, text = REFUSED[case]

    def run(comm):
        collective = kind(comm, COUNT, algorithm="pipelined")
        send, recv = arrays(collective, comm.rank)
        if comm.rank == 1:
            with pytest.raises(error, match=f"{which} .*({text})"):
                collective.run(*((make(send.size), recv) if which == "send" else (send, make(recv.size))))
        else:
            with pytest.raises(onebit.InvalidArgument, match="rank 1"):
                collective.run(send, recv)
        collective.run(send, recv)  # goes on

    on_ranks(2, run)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_only_or_overlaps_is_refused(kind):
    def run(comm):
        collective = kind(comm, COUNT)
        both = values(comm.rank)
        part = both[1 : COUNT // 2 + 1]
        with pytest.raises(onebit.InvalidArgument, match="overlap"):
            collective.run(*((both, part) if kind is onebit.ReduceScatter else (part, both)))
        send, recv = arrays(collective, comm.rank)
        recv.flags.writeable = False
        with pytest.raises(onebit.InvalidArgument, match="recv is read-only"):
            collective.run(send, recv)
        with pytest.raises(onebit.InvalidArgument, match="recv has|send has"):
            collective.run(send, send)
        send.flags.writeable = False
        collective.run(send, np.empty_like(recv))

    on_ranks(2, run)


@pytest.mark.parametrize("algorithm", ["dense", "pipelined"])
def test_nonfinite_on_one_rank(algorithm):
    def run(comm):
        reduce_scatter = onebit.ReduceScatter(comm, COUNT, algorithm=algorithm)
        send, recv = arrays(reduce_scatter, comm.rank)
        reduce_scatter.run(send, recv)
        before = reduce_scatter.error()
        send[7] = np.nan if comm.rank else 0
        with pytest.raises(onebit.Nonfinite, match="rank 1"):
            reduce_scatter.run(send, recv)
        assert np.array_equal(reduce_scatter.error(), before)

    on_ranks(2, run)


def test_a_sum_that_overflows():
    def run(comm):
        huge = np.full(COUNT, 3e38, np.float32)
        with pytest.raises(onebit.Nonfinite, match="overflows"):
            onebit.ReduceScatter(comm, COUNT, algorithm="dense", op="sum").run(huge, huge[: COUNT // 2].copy())

    on_ranks(2, run)


@pytest.mark.parametrize("mine", [{"counts": [4000, 800]}, {"codec": "int8"}, {"count": 2 * COUNT}])
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_differ(kind, mine):
    def run(comm):
        options = dict(mine) if comm.rank else {}
        with pytest.raises(onebit.Mismatch):
            kind(comm, options.pop("count", COUNT), **options)

    on_ranks(2, run)


WRONG = [
    ({"count": 0}, onebit.InvalidArgument),
    ({"count": -5}, onebit.InvalidArgument),
    ({"count": 1.5}, TypeError),
    ({"algorithm": "quick"}, onebit.InvalidArgument),
    ({"speed": 2}, TypeError),
    ({"memory": "host"}, TypeError),
    ({"threads": -1}, onebit.InvalidArgument),
    ({"threads": 1.5}, TypeError),
    ({"counts": [COUNT]}, onebit.InvalidArgument),
    ({"counts": [1, COUNT - 2, 1]}, onebit.InvalidArgument),
    ({"counts": [-1, COUNT + 1]}, onebit.InvalidArgument),
    ({"counts": [2**64 + 1, COUNT - 1]}, onebit.InvalidArgument),
    ({"counts": [1.0, COUNT - 1.0]}, TypeError),
    ({"counts": COUNT}, TypeError),
]


@pytest.mark.parametrize("wrong, error", WRONG)
@pytest.mark.parametrize("kind", KINDS)
def test_a_creation_that_python_refuses_on_one_rank_fails_on_all_at_once(kind, wrong, error):
    def run(comm):
        options = dict(wrong) if comm.rank == 1 else {}
        with pytest.raises(error if comm.rank == 1 else onebit.InvalidArgument) as caught:
            kind(comm, options.pop("count", COUNT), **options)
        assert comm.rank == 1 or "rank 1" in str(caught.value)
        collective = kind(comm, COUNT)
        collective.run(*arrays(collective, comm.rank))

    on_ranks(2, run)


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"count": COUNT + 1}, onebit.InvalidArgument, "count"),
        ({"counts": [COUNT, 1]}, onebit.InvalidArgument, "counts"),
        ({"counts": np.array([2**63, 2**63 + COUNT], np.uint64)}, onebit.InvalidArgument, "counts"),
        ({"algorithm": "flat"}, onebit.InvalidArgument, "algorithm"),
        ({"scale": 77}, onebit.InvalidArgument, "scale"),
        ({"group": "tensor"}, onebit.InvalidArgument, "group"),
        ({"codec": "int8", "scale": "l1"}, onebit.InvalidArgument, "scale"),
        ({"count": InGpuMemory()}, onebit.Unsupported, "memory"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_settings_that_the_library_refuses(kind, options, error, text):
    def run(comm):
        others = {name: value for name, value in options.items() if name != "count"}
        with pytest.raises(error, match=text):
            kind(comm, options.get("count", COUNT), **others)

    on_ranks(2, run)


@pytest.mark.parametrize("kind", KINDS)
def test_closed(kind):
    (comm,) = onebit.loopback(1)
    with kind(comm, COUNT) as collective:
        assert not collective.closed
        pair = values(0), values(1)
    assert collective.closed
    collective.close()
    with pytest.raises(onebit.InvalidHandle):
        collective.run(*pair)
    with pytest.raises(onebit.InvalidHandle):
        collective.info
    left_open = kind(comm, COUNT)
    left_open.start(*pair)
    with pytest.raises(onebit.Busy):
        left_open.close()
    del left_open
    gc.collect()
    comm.close()
    with pytest.raises(onebit.InvalidHandle):
        kind(comm, COUNT)


@pytest.mark.parametrize("kind", KINDS)
def test_abort_ends_other_ranks_calls(kind):
    both_created = threading.Barrier(2)

    def run(comm):
        collective = kind(comm, COUNT, algorithm="pipelined")
        both_created.wait(20)
        if comm.rank == 1:
            comm.abort("out of memory")
        else:
            with pytest.raises(onebit.TransportError, match="out of memory"):
                collective.run(*arrays(collective, 0))

    on_ranks(2, run)


def test_processes_that_talk_over_tcp(tmp_path):
    arguments = [(str(rank), "3", str(tmp_path / "meeting")) for rank in range(3)]
    assert run_together("shards.py", arguments).count("ok") == 3


@pytest.mark.skipif(shutil.which(MPIRUN[0]) is None, reason="no Open MPI")
def test_processes_of_mpi():
    pytest.importorskip("mpi4py")
    assert mpirun(2, "shards.py").count("ok") == 2
