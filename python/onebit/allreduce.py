# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The compressed allreduce: planned once, run many times."""

import ctypes
import math
import operator
from typing import Any, NamedTuple, Optional, Sequence, Tuple, Union

from onebit import _c, _structs
from onebit._collective import Collective, Functions
from onebit._errors import InvalidArgument
from onebit._library import library
from onebit._values import AllreduceInfo, Codec, LevelInfo
from onebit.communicator import Communicator


class Level(NamedTuple):
    """A level of an `Allreduce`: the group that this rank is in, and how values travel inside it. onebit_level_t."""

    color: Union[int, str]
    """Ranks of one color are one group: any number from 0 on, or "node" for the ranks of this rank's node."""
    codec: Union[None, str, Codec] = None
    """As an Allreduce's; None: values travel as they are."""
    options: dict = {}
    """The codec's, as of an Allreduce: scale, group, kept, value_bits, error_type."""


class Allreduce(Collective):
    """Averages `count` elements over the ranks, or adds them up, sending few bits for each instead of 16 or 32.

    A message's compression error is carried into the next call (error feedback). So one Allreduce belongs to one
    sequence of arrays, for example a model's gradients. Arrays are NumPy's, PyTorch's, or any with
    `__array_interface__`, `__cuda_array_interface__` or DLPack: contiguous, float32, float16 or bfloat16 (PyTorch's, or
    by DLPack), `count` elements in any shape. No array is copied. 16-bit elements are added up in float32, and a result
    is rounded once.

    One thread at a time uses an Allreduce (Busy). Other Python threads run during a call. A collective call that fails
    on one rank fails on every rank, and leaves the error state as it was.
    """

    _config_type = _c.AllreduceConfig
    _config_init = library.onebit_allreduce_config_init
    _functions = Functions(
        create=library.onebit_allreduce_create,
        run=library.onebit_allreduce_run,
        start=library.onebit_allreduce_start,
        test=library.onebit_allreduce_test,
        wait=library.onebit_allreduce_wait,
        set_callback=library.onebit_allreduce_set_callback,
        set_algorithm=library.onebit_allreduce_set_algorithm,
        destroy=library.onebit_allreduce_destroy,
        reset=library.onebit_allreduce_reset,
        state_size=library.onebit_allreduce_state_size,
        pack_state=library.onebit_allreduce_pack_state,
        unpack_state=library.onebit_allreduce_unpack_state,
        save=library.onebit_allreduce_save,
        load=library.onebit_allreduce_load,
    )

    def __init__(self, comm: Communicator, count_or_array, *, memory: Optional[str] = None, stream: int = 0, **options):
        """Plans, and allocates all memory that its calls will use. Collective; blocks.

          count_or_array  elements, at least the number of ranks; or an array of as many
          memory          "host" or "cuda": where the arrays lie; None: where `count_or_array` does, if it's an array
          stream          of a GPU's memory: the address of the cudaStream_t that the work goes into; 0: the default one
          dtype           "float32", "float16" or "bfloat16": of the arrays; None: that of `count_or_array`, if it's an
                          array, else float32. 16 bits on the host only
          algorithm       "auto" (chosen by measuring), "dense" (an exact average), "flat", "pipelined", "two_level",
                          "bruck", "ring", "levels"
          codec           "sign", "int8", "int4", "fp4", "bfloat16", "ternary", "topk", "float16", "int2", "means" or
                          "randomk": what stands for an element in a compressed message; or "powersgd": matrices are
                          averaged by approximations of a low rank. "topk", "randomk" and "powersgd" on the host only
          scale           "l2" or "l1": the magnitude that stands for a group's elements; of "sign"
          group           "block" (4096 elements) or "buffer": the elements that share a scale; of "sign"
          kept            elements of 4096 that "topk" and "randomk" send, at most 128; 0: 64
          value_bits      8 or 2 bits for each of them; 0: 8
          rounding        "nearest" or "stochastic", of "int8" and "int4": "stochastic" rounds up or down at random, so
                          that the mean is the value; on the host
          shapes          of "powersgd": the shape of each tensor; the array has all tensors one after the other. None:
                          the shape of `count_or_array`, if it's an array. A tensor of more than two dimensions is
                          taken as the matrix with fewest rows and columns. A tensor that "powersgd" can't shorten,
                          such as a vector, is averaged exactly
          levels          groups of ranks near each other, the smallest first, at most two levels: a `Level` or
                          (color, codec) each. `codec` is then used between the groups of the last level. On the host
          matrix_rank     of "powersgd": directions of each matrix, at most 64; 0: 4
          error_type      "float32", "bfloat16" or "int8": the type of kept errors; "bfloat16" takes half the memory,
                          "int8" a quarter
          op              "average" or "sum": how the ranks' values are combined
          check           "full", "full_low_memory" or "none": what is checked before anything changes
          threads         this rank's own; 0: ONEBIT_THREADS, else 1

        onebit_allreduce_config_t in onebit.h says more about each. All but `threads` and `stream` are the same on every
        rank (Mismatch).
        """
        self._create(comm, lambda: self._config(count_or_array, memory, stream, options))

    @classmethod
    def _config(cls, count_or_array, memory: Optional[str], stream: int, options: dict) -> Any:
        options = dict(options)
        shapes = options.pop("shapes", None)
        levels = options.pop("levels", None)
        config = super()._config(count_or_array, memory, stream, options)
        if shapes is None and config.codec == Codec.POWERSGD:
            shapes = [getattr(count_or_array, "shape", (config.count,))]
        if shapes is not None:
            numbers = [number for shape in shapes for number in _matrix_of(shape)]
            config.array_of_shapes = (ctypes.c_uint64 * len(numbers))(*numbers)  # lives as long as the config
            config.shapes = ctypes.addressof(config.array_of_shapes)
            config.num_shapes = len(numbers) // 2
        set_levels(config, levels)
        return config

    @classmethod
    def choose_codec(
        cls, comm: Communicator, count_or_array, max_error: float, *, memory: Optional[str] = None, stream: int = 0,
        **options
    ) -> Codec:
        """The codec whose compressed average is fastest, among the codecs with an error of at most `max_error`.

        The same on every rank. Measures each codec that the ranks haven't measured yet, for some tenths of a second.
        Collective; blocks.
          max_error  error of one call on Gaussian values, divided by the exact average's norm: docs/CODECS.md has each
                     codec's. At least the smallest of them. The same on every rank
          others     those of the Allreduce; its algorithm and codec, and options of one codec alone, are ignored
        """
        codec = ctypes.c_int()

        def choose(config, most=-1.0):  # no codec has this error
            library.onebit_allreduce_choose_codec(comm._handle, ctypes.byref(config), most, ctypes.byref(codec))

        try:
            config, most = cls._config(count_or_array, memory, stream, options), ctypes.c_double(max_error)
        except Exception:
            cls._refuse_config(choose)
            raise
        choose(config, most)
        return Codec(codec.value)

    def run(self, send, recv=None) -> Any:
        """recv = average (or sum) over the ranks of send, the same bits on every rank. Returns recv. Collective; blocks.

          send  array of `count` elements
          recv  array that the result is written to; may be `send`, may not overlap it otherwise. None: `send`

        Raises Nonfinite for a NaN or an infinity in any rank's `send`. An array of another size, type or device, or one
        that isn't contiguous, is refused on this rank (TypeError, InvalidArgument); other ranks get InvalidArgument.
        In a GPU's memory the call is ordered with the stream's work, as onebit_allreduce_run says.
        """
        return self._run(send, send if recv is None else recv)

    def start(self, send, recv=None) -> None:
        """Begins what `run` does, and returns at once; `test` or `wait` finishes it. Collective.

        Both arrays belong to the operation until then. On the host it makes progress only inside `test` and `wait`.
        """
        self._start(send, send if recv is None else recv)

    def set_mask(self, mask) -> None:
        """Declares which elements are ever nonzero. The others have no part in any scale, and their result is zero.

        Collective; blocks.
          mask  boolean NumPy array of `count` elements, the same on every rank; None: all take part
        """
        if mask is None:
            library.onebit_allreduce_set_mask(self._handle, None)
            return
        import numpy

        mask = numpy.asarray(mask)
        if mask.dtype != bool or mask.size != self.count:
            raise InvalidArgument(f"mask has {mask.size} elements of {mask.dtype}; {self.count} of bool wanted")
        words = numpy.zeros((self.count + 31) // 32, dtype="<u4")
        bits = numpy.packbits(mask.ravel(), bitorder="little")
        words.view(numpy.uint8)[: bits.size] = bits
        library.onebit_allreduce_set_mask(self._handle, words.ctypes.data)

    @property
    def info(self) -> AllreduceInfo:
        """Calls, bytes sent, memory, and which algorithm was chosen and why. Local."""
        return _structs.read_info(
            _c.AllreduceInfo,
            AllreduceInfo,
            "onebit_allreduce_info_init",
            "onebit_allreduce_get_info",
            self._handle,
        )

    def level(self, level: int) -> LevelInfo:
        """What a level does and sends. After those of `levels` comes the level between the last groups. Local."""
        return self._get_level(level, None)

    def level_error(self, level: int):
        """What a level's encoder has not delivered yet, of the elements that `level` says: a NumPy array. Local."""
        import numpy

        error = numpy.empty(self.level(level).count, numpy.float32)
        self._get_level(level, error.ctypes.data)
        return error

    def _get_level(self, level, error):
        def get(handle, info):
            library.onebit_allreduce_get_level(handle, min(operator.index(level), 2**32 - 1), info, error)

        return _structs.read_info_by(_c.LevelInfo, LevelInfo, "onebit_level_info_init", get, self._handle)

    def errors(self):
        """What has not been delivered yet: (worker, server, begin). Local.

        worker: float32 NumPy array of `count` elements; server: that of this rank's chunk, which starts at `begin`.
        With "powersgd" server has the last right factors, which are no error. With levels worker has the error between
        the last groups; `level_error` has the rest.
        """
        import numpy

        begin, count = ctypes.c_uint64(), ctypes.c_uint64()
        get = library.onebit_allreduce_get_error
        get(self._handle, None, None, ctypes.byref(begin), ctypes.byref(count))
        worker = numpy.empty(self.count, numpy.float32)
        server = numpy.empty(count.value, numpy.float32)
        get(self._handle, worker.ctypes.data, server.ctypes.data, None, None)
        return worker, server, begin.value

    def pack_state(self) -> bytearray:
        """The error state, for a checkpoint of this rank. Local. A mask isn't in it."""
        return super().pack_state()


def set_levels(config, levels: Optional[Sequence]) -> None:
    """Sets the levels of an allreduce or an optimizer: `Level`s, or (color, codec) each; None: no levels."""
    if levels:
        config.array_of_levels = (_c.Level * len(levels))(*(_struct_of(Level(*level)) for level in levels))
        config.levels = ctypes.addressof(config.array_of_levels)  # the array lives as long as the config
        config.num_levels = len(levels)


def _struct_of(level: Level):
    struct = _structs.initialised(_c.Level, library.onebit_level_init, 0)
    _structs.set_member(struct, "color", _c.LEVEL_NODE if level.color == "node" else operator.index(level.color))
    if level.codec is not None:
        struct.compressed = 1
        _structs.set_member(struct, "codec", level.codec)
        wrong = set(level.options) - {"scale", "group", "kept", "value_bits", "error_type"}
    else:
        wrong = level.options
    if wrong:
        where = "" if level.codec is not None else " without a codec"
        raise InvalidArgument(f"levels: a level{where} has no {', '.join(wrong)}")
    _structs.set_options(struct, level.options)
    return struct


def _matrix_of(shape: Sequence[int]) -> Tuple[int, ...]:
    """Rows and columns of a tensor as a matrix, cut so that they are fewest. Nothing for a tensor without elements."""
    sizes = [operator.index(size) for size in shape]
    if any(size < 0 for size in sizes):
        raise InvalidArgument(f"shapes has {tuple(shape)}: no size is negative")
    if 0 in sizes:
        return ()
    cuts = ((math.prod(sizes[:cut]), math.prod(sizes[cut:])) for cut in range(max(len(sizes), 1)))
    rows, columns = min(cuts, key=sum)
    if max(rows, columns) >= 1 << 64:
        raise InvalidArgument(f"shapes has {tuple(shape)}: too many elements")
    return rows, columns
