# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The two halves of a compressed allreduce, over shards: planned once, run many times."""

import ctypes
import operator
from typing import Any, Optional, Sequence

from onebit import _c, _structs
from onebit._collective import Collective, Functions
from onebit._errors import InvalidArgument
from onebit._library import library
from onebit._values import ShardInfo
from onebit.communicator import Communicator


class _Sharded(Collective):
    """One of the two. A whole array of `count` elements is cut into one shard for each rank, in the ranks' order."""

    _config_type = _c.ShardConfig
    _config_init = library.onebit_shard_config_init
    _get_info: str
    _get_error: Any

    def __init__(self, comm: Communicator, count_or_array, *, counts: Optional[Sequence[int]] = None, **options):
        """Plans, and allocates all memory that its calls will use. Collective; blocks.

          count_or_array  elements of a whole array, at least the number of ranks; or an array of as many
          counts          elements of each rank's shard, in sum the whole array's; some may be 0. None: all are equal
          dtype           "float32", "float16" or "bfloat16": of the arrays; None: that of `count_or_array`, if it's an
                          array, else float32
          algorithm       "dense" (exact), "pipelined" (compressed), or "auto": exact where an Allreduce would be
          codec           "sign", "int8", "int4", "fp4", "bfloat16", "ternary", "topk", "float16", "int2", "means" or
                          "randomk": what stands for an element in a message
          scale           "l2" or "l1": the magnitude that stands for a group's elements; of "sign"
          group           "block" (4096 elements) or "buffer": the elements that share a scale; of "sign"
          kept            elements of 4096 that "topk" and "randomk" send, at most 128; 0: 64
          value_bits      8 or 2 bits for each of them; 0: 8
          rounding        "nearest" or "stochastic", of "int8" and "int4": "stochastic" rounds up or down at random, so
                          that the mean is the value
          error_type      "float32", "bfloat16" or "int8": the type of kept errors; "bfloat16" takes half the memory,
                          "int8" a quarter
          op              "average" or "sum": how the ranks' values are combined; of a ReduceScatter
          check           "full", "full_low_memory" or "none": what is checked before anything changes
          threads         this rank's own; 0: ONEBIT_THREADS, else 1

        onebit_shard_config_t in onebit.h says more about each. All but `threads` are the same on every rank (Mismatch).
        Arrays lie in the host's memory (Unsupported).
        """
        self._create(comm, lambda: self._shard_config(comm.size, count_or_array, counts, options))
        info = self.info
        self.shard: slice = slice(info.shard_begin, info.shard_begin + info.shard_count)
        """This rank's shard: `whole[shard]`, of a whole array in one dimension."""
        self._set_counts(info.shard_count)

    def _set_counts(self, shard_count: int) -> None:
        """Elements of what is sent and of what is received."""
        raise NotImplementedError

    def _shard_config(self, ranks: int, count_or_array, counts, options: dict) -> Any:
        config = self._config(count_or_array, None, 0, options)
        if counts is not None:
            config.array_of_counts = _array_of_counts(counts, ranks)  # lives as long as the config
            config.counts = ctypes.addressof(config.array_of_counts)
        return config

    def start(self, send, recv) -> None:
        """Begins what `run` does, and returns at once; `test` or `wait` finishes it. Collective.

        Both arrays belong to the operation until then. It makes progress only inside `test`, `wait` and
        `Communicator.progress`.
        """
        self._start(send, recv)

    @property
    def info(self) -> ShardInfo:
        """This rank's shard, calls, bytes sent, memory, and which algorithm was chosen and why. Local."""
        return _structs.read_info(_c.ShardInfo, ShardInfo, "onebit_shard_info_init", self._get_info, self._handle)

    def error(self):
        """What has not been delivered yet: a float32 NumPy array of as many elements as `send` has. Local."""
        import numpy

        error = numpy.empty(self._send_count, numpy.float32)
        self._get_error(self._handle, error.ctypes.data)
        return error


class ReduceScatter(_Sharded):
    """Averages `count` elements over the ranks, or adds them up; each rank gets only its shard of the result.

    Few bits are sent for each element instead of 16 or 32. A message's compression error is carried into the next call
    (error feedback). So one ReduceScatter belongs to one sequence of arrays, for example a model's gradients. Followed
    by an AllGather of the same settings, it is an Allreduce. Arrays are those that `Allreduce` takes, in the host's
    memory.

    One thread at a time uses a ReduceScatter (Busy). Other Python threads run during a call. A collective call that
    fails on one rank fails on every rank, and leaves the error state as it was.
    """

    _functions = Functions(
        create=library.onebit_reduce_scatter_create,
        run=library.onebit_reduce_scatter_run,
        start=library.onebit_reduce_scatter_start,
        test=library.onebit_reduce_scatter_test,
        wait=library.onebit_reduce_scatter_wait,
        set_callback=library.onebit_reduce_scatter_set_callback,
        set_algorithm=library.onebit_reduce_scatter_set_algorithm,
        destroy=library.onebit_reduce_scatter_destroy,
        reset=library.onebit_reduce_scatter_reset,
        state_size=library.onebit_reduce_scatter_state_size,
        pack_state=library.onebit_reduce_scatter_pack_state,
        unpack_state=library.onebit_reduce_scatter_unpack_state,
        save=library.onebit_reduce_scatter_save,
        load=library.onebit_reduce_scatter_load,
    )
    _get_info = "onebit_reduce_scatter_get_info"
    _get_error = library.onebit_reduce_scatter_get_error

    def run(self, send, recv) -> Any:
        """recv = this rank's shard of the average (or sum) over the ranks of send. Returns recv. Collective; blocks.

          send  array of `count` elements
          recv  array of as many as this rank's shard has, that the result is written to; may be `send[shard]`, may not
                overlap `send` otherwise

        Raises Nonfinite for a NaN or an infinity in any rank's `send`. An array of another size, type or device, or one
        that isn't contiguous, is refused on this rank (TypeError, InvalidArgument); other ranks get InvalidArgument.
        """
        return self._run(send, recv)

    def _set_counts(self, shard_count: int) -> None:
        self._recv_count = shard_count


class AllGather(_Sharded):
    """Gives every rank all ranks' shards, one after the other: `count` elements, the same bits on every rank.

    Few bits are sent for each element instead of 16 or 32. A message's compression error is carried into the next call
    (error feedback). So one AllGather belongs to one sequence of arrays, for example a ReduceScatter's averages: values
    that change from call to call. Arrays are those that `Allreduce` takes, in the host's memory.

    One thread at a time uses an AllGather (Busy). Other Python threads run during a call. A collective call that fails
    on one rank fails on every rank, and leaves the error state as it was.
    """

    _functions = Functions(
        create=library.onebit_all_gather_create,
        run=library.onebit_all_gather_run,
        start=library.onebit_all_gather_start,
        test=library.onebit_all_gather_test,
        wait=library.onebit_all_gather_wait,
        set_callback=library.onebit_all_gather_set_callback,
        set_algorithm=library.onebit_all_gather_set_algorithm,
        destroy=library.onebit_all_gather_destroy,
        reset=library.onebit_all_gather_reset,
        state_size=library.onebit_all_gather_state_size,
        pack_state=library.onebit_all_gather_pack_state,
        unpack_state=library.onebit_all_gather_unpack_state,
        save=library.onebit_all_gather_save,
        load=library.onebit_all_gather_load,
    )
    _get_info = "onebit_all_gather_get_info"
    _get_error = library.onebit_all_gather_get_error

    def run(self, send, recv) -> Any:
        """recv = all ranks' shards; send is this rank's. Returns recv. Collective; blocks.

          send  array of as many elements as this rank's shard has
          recv  array of `count` elements that the result is written to; `send` may be `recv[shard]`, may not overlap
                `recv` otherwise

        A rank's own shard in `recv` has the values that the other ranks get. "dense" copies finite values' bits. Raises
        what `ReduceScatter.run` raises.
        """
        return self._run(send, recv)

    def _set_counts(self, shard_count: int) -> None:
        self._send_count = shard_count


def _array_of_counts(counts: Sequence[int], ranks: int) -> Any:
    numbers = [operator.index(count) for count in counts]
    if len(numbers) != ranks:
        raise InvalidArgument(f"counts has {len(numbers)} numbers; {ranks} wanted, one for each rank")
    array = (ctypes.c_uint64 * ranks)(*numbers)
    if list(array) != numbers:
        raise InvalidArgument(f"counts={numbers}: numbers of elements wanted")
    return array
