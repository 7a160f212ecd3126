# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""onebit for JAX: the ranks of jax.distributed, and averages inside a jitted step. One device for each process.

jax.distributed.initialize(...)
comm = onebit.jax.communicator()
parameters = onebit.jax.broadcast(comm, parameters)
average = onebit.jax.GradientAverage(comm, parameters)

@jax.jit
def step(parameters, state, batch):
    gradients = average(jax.grad(loss)(parameters, batch))
    ...
"""

from collections import Counter
from typing import Any, Dict, Optional

import jax
import numpy
from jax.experimental import io_callback

from onebit import _broadcast
from onebit._errors import InvalidArgument, Nonfinite
from onebit._stages import StagedAverage, stages_of
from onebit._store import StoreAllgather, milliseconds_to_wait
from onebit._values import Codec
from onebit.communicator import Communicator, from_bootstrap

# How many communicators this process has made; the same on every rank.
_made: Counter = Counter()


def communicator(*, interface: Optional[str] = None, timeout: float = 0.0) -> Communicator:
    """The processes of jax.distributed. They find each other through its store, and talk over TCP. Collective; blocks.

      interface  network interface or local address to listen on; None: ONEBIT_INTERFACE, else chosen
      timeout    seconds to wait for others, now and in later calls; 0: ONEBIT_TIMEOUT

    Raises RuntimeError before jax.distributed.initialize().
    """
    client = _client()
    milliseconds = milliseconds_to_wait(timeout)

    def get(key):
        return client.blocking_key_value_get_bytes(key, milliseconds)

    prefix = f"onebit/{_made['all']}"
    _made["all"] += 1
    gather = StoreAllgather(jax.process_index(), jax.process_count(), client.key_value_set_bytes, get, prefix)
    return from_bootstrap(gather.rank, jax.process_count(), gather, interface=interface, timeout=timeout)


def broadcast(comm: Communicator, tree: Any) -> Any:
    """The tree with rank 0's values, bit for bit: ranks' parameters must be equal when a training begins.

    Collective; blocks. Called outside jit.
      tree  arrays of any type and shape, the same structure on every rank. NumPy's come back as NumPy's, which can be
            written to; all others as JAX's, on their own devices. None is changed

    Raises Mismatch on every rank if a rank's structure, shapes or types are not rank 0's.
    """
    leaves, structure = jax.tree_util.tree_flatten(tree)
    with _broadcast.failing_together(comm):
        arrays = [numpy.asarray(leaf) for leaf in leaves]
        parts = [numpy.ascontiguousarray(each).reshape(-1).view(numpy.uint8) for each in arrays]
    _broadcast.require_same(_description(arrays, structure), comm)
    together = _broadcast.broadcast(numpy.concatenate([*parts, numpy.empty(0, numpy.uint8)]), comm)
    ends = numpy.cumsum([part.size for part in parts])
    values = [
        part.view(each.dtype).reshape(each.shape).copy()
        for part, each in zip(numpy.split(together, ends[:-1]), arrays)
    ]
    return structure.unflatten(map(_as_the_leaf, values, leaves))


def _description(leaves, structure) -> str:
    return f"{[f'{leaf.dtype}{list(leaf.shape)}' for leaf in leaves]} in {structure}"


def _as_the_leaf(values: numpy.ndarray, leaf: Any) -> Any:
    if isinstance(leaf, numpy.ndarray):
        return values
    return jax.device_put(values, leaf.sharding if isinstance(leaf, jax.Array) else None)


class GradientAverage:
    """Averages a tree of gradients over the ranks, compressed after a warm-up. Called inside jit, or outside.

    Every call is collective: each rank makes every call. A NaN or an infinity on any rank makes all gradients NaN
    on all ranks. `onebit.Optimizer` sends updates in place of gradients, and learns better: see python/README.md.
    """

    def __init__(
        self,
        communicator: Communicator,
        tree: Any,
        *,
        warmup_steps: Optional[int] = None,
        equalize: Optional[bool] = None,
        **options,
    ):
        """Collective; blocks.

          tree          parameters or gradients: shapes and types count
          warmup_steps  calls that average exactly, before the first compressed one. None: 1000 for codecs "sign",
                        "means", "ternary", "int2", "topk", "randomk" and "powersgd", which Adam needs, or with
                        equalize=True; else 0
          equalize      after the warm-up each gradient is divided by the magnitude that its element had at the
                        warm-up's end, and the average is multiplied by it: small gradients don't drown. 4 bytes of
                        memory per element. None: True for codecs "sign", "means", "ternary" and "int2", else False
          options       those of `onebit.Allreduce`: algorithm, codec, scale, group, kept, value_bits, matrix_rank,
                        rounding, levels, error_type, check, threads. Matrices of "powersgd" are the tree's arrays

        Parameters are not looked at: `broadcast` makes them equal on every rank. Raises Mismatch on every rank if a
        rank's structure, shapes or types are not rank 0's.
        """
        with _broadcast.failing_together(communicator):
            self.warmup_steps, equalize = stages_of(options.get("codec", Codec.SIGN), warmup_steps, equalize)
            self._structure: Any
            leaves, self._structure = jax.tree_util.tree_flatten(tree)
            self._shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
            self._ends = numpy.cumsum([int(numpy.prod(leaf.shape)) for leaf in leaves])
            if not leaves or self._ends[-1] == 0:
                raise InvalidArgument("tree: there is nothing to average")
        _broadcast.require_same(_description(self._shapes, self._structure), communicator)
        self._values = numpy.zeros(max(int(self._ends[-1]), communicator.size), numpy.float32)
        self._staged = StagedAverage(
            communicator, self._values, equalize, numpy.zeros_like, shapes=[leaf.shape for leaf in leaves], **options
        )
        self.steps: int = 0
        """Calls that were averaged."""

    def __call__(self, gradients: Any) -> Any:
        leaves, structure = jax.tree_util.tree_flatten(gradients)
        shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
        if structure != self._structure or shapes != self._shapes:
            raise ValueError(f"gradients are {structure} of {shapes}; {self._structure} of {self._shapes} wanted")
        averaged = io_callback(self._average, self._shapes, *leaves, ordered=True)
        return jax.tree_util.tree_unflatten(structure, averaged)

    def state_dict(self) -> Dict[str, Any]:
        """This rank's error, the magnitudes and `steps`, NumPy arrays and a number: each rank saves its own. Local.

        Raises Busy while a call is under way: jax.block_until_ready waits for its result.
        """
        state = self._staged.state()
        error = numpy.frombuffer(state.pop("error"), numpy.uint8)
        return {"steps": self.steps, "error": error, **{name: values.copy() for name, values in state.items()}}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on, bit for bit, from what `state_dict` returned on this rank, of as many ranks. Collective; blocks.

        Raises BadState or Mismatch on every rank, and changes nothing, if any rank's state doesn't fit.
        """
        kept: Dict[str, Any] = {
            name: numpy.array(state[name], numpy.float32) for name in ("squares", "magnitudes") if name in state
        }
        self._staged.load({**kept, "error": numpy.asarray(state["error"])})
        self.steps = int(state["steps"])

    def _average(self, *leaves):
        pieces = numpy.split(self._values[: self._ends[-1]], self._ends[:-1])
        for piece, leaf in zip(pieces, leaves):
            piece[:] = numpy.asarray(leaf, numpy.float32).ravel()
        try:
            self._staged.run(self._values, exact=self.steps < self.warmup_steps)
        except Nonfinite:
            for piece in pieces:  # not what lies behind them
                piece.fill(numpy.nan)
        self.steps += 1
        return [piece.reshape(shape.shape).astype(shape.dtype) for piece, shape in zip(pieces, self._shapes)]


def _client():
    """jax.distributed's store. JAX has no public name for it."""
    from jax._src import distributed

    client = distributed.global_state.client
    if client is None:
        raise RuntimeError(
            "call jax.distributed.initialize() first; ranks that find each other otherwise use onebit.from_bootstrap"
        )
    return client
