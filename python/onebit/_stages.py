# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""An average that is exact in a warm-up, and compressed afterwards."""

import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from onebit._equalizer import Equalizer
from onebit._errors import InvalidArgument
from onebit._values import Algorithm, AllreduceInfo, Codec
from onebit.allreduce import Allreduce
from onebit.communicator import Communicator


_FEW_NUMBERS = (Codec.TOPK, Codec.RANDOMK, Codec.POWERSGD)


def stages_of(codec, warmup_steps: Optional[int], equalize: Optional[bool]) -> Tuple[int, bool]:
    """Exact steps before the first compressed one, and whether to equalize.

    warmup_steps=None: 1000 if a codec sends less than 4 bits for an element (docs/CODECS.md), or if values are
    equalized, else 0. equalize=None: True for "sign", "means", "ternary" and "int2".
    """
    codec = codec_of(codec)
    few_bits = codec in (Codec.SIGN, Codec.MEANS, Codec.TERNARY, Codec.INT2)
    equalize = few_bits if equalize is None else equalize
    if warmup_steps is None:  # equalizing needs the warm-up's magnitudes
        warmup_steps = 1000 if few_bits or codec in _FEW_NUMBERS or equalize else 0
    if warmup_steps < 0:
        raise InvalidArgument(f"warmup_steps={warmup_steps}: at least 0")
    return warmup_steps, equalize


def codec_of(codec):
    """A codec's name as a member of Codec; other values as they are."""
    return Codec[codec.upper()] if isinstance(codec, str) and codec.upper() in Codec.__members__ else codec


class StagedAverage:
    """Averages of one buffer over the ranks, step after step. If compression doesn't pay, all averages are exact."""

    def __init__(
        self,
        comm: Communicator,
        values,
        equalize: bool,
        zeros_like: Callable[[Any], Any],
        *,
        shapes: Optional[List[Sequence[int]]] = None,
        stream=0,
        **options,
    ):
        """Collective; blocks.

          values      the buffer, flat, NumPy's or PyTorch's
          shapes      of the tensors that lie in it one after the other, without the padding; for "powersgd"
          equalize    whether an Equalizer brings the values of compressed averages to one magnitude; of float32
          zeros_like  numpy's or torch's
        """
        if shapes is not None and codec_of(options.get("codec")) == Codec.POWERSGD:
            filling = math.prod(values.shape) - sum(map(math.prod, shapes))
            options["shapes"] = [*shapes, (filling,)]
        self._allreduce = Allreduce(comm, values, stream=stream, **options)
        self._compressed = self._allreduce.info.algorithm
        self._exact = self._compressed is Algorithm.DENSE  # True: stays so, as there is no compressed algorithm
        self._equalizer = Equalizer(zeros_like) if equalize and not self._exact else None

    def run(self, values, exact: bool) -> None:
        """Replaces the values by their average. Collective; blocks. `exact` is the same on every rank.

        Raises Nonfinite on every rank for a NaN or an infinity in any rank's values. The values may have changed then.
        """
        equalizer = self._equalizer
        if equalizer is None:
            self._run(values, exact)
        elif exact:
            equalizer.watch(values)
            self._run(values, exact)
        else:
            if equalizer.watches:
                equalizer.settle(lambda squares: self._run(squares, exact=True))
            equalizer.equalize(values)
            self._run(values, exact)
            equalizer.restore(values)

    def _run(self, values, exact: bool) -> None:
        if self._compressed is not Algorithm.DENSE and exact != self._exact:
            self._allreduce.set_algorithm(Algorithm.DENSE if exact else self._compressed)
            self._exact = exact
        self._allreduce.run(values)

    @property
    def info(self) -> AllreduceInfo:
        """The Allreduce's info. Local."""
        return self._allreduce.info

    def state(self) -> Dict[str, Any]:
        """This rank's "error" as bytes, and the other buffers that are kept, not copied. Local."""
        kept = {} if self._equalizer is None else self._equalizer.state()
        return {"error": self._allreduce.pack_state(), **kept}

    def load(self, state: Dict[str, Any]) -> None:
        """Goes on from what `state` returned on this rank, and owns its buffers. Collective; blocks."""
        self._allreduce.unpack_state(state["error"])
        if self._equalizer is not None:
            self._equalizer.load(state)
