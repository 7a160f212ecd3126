# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compressed averages between the replicas of a model that FSDP2 shards."""

from typing import Any, Dict, Iterable, Optional, Tuple

import torch

from onebit._errors import InvalidArgument
from onebit._stages import codec_of
from onebit._values import Codec
from onebit.communicator import Communicator
from onebit.torch import _start
from onebit.torch._average import Average, Averaging, HookInfo


class FsdpHook(Averaging):
    """What `fsdp_hook` returns: the undelivered part of each parameter group's gradients."""

    def __init__(self, model, group, communicator, warmup_steps: Optional[int], equalize: Optional[bool], options: dict):
        modules = _sharded(model)
        if codec_of(options.get("codec")) == Codec.POWERSGD:
            raise InvalidArgument('codec="powersgd" is for matrices: FSDP hands its hook shards, which are none')
        super().__init__(group, communicator, warmup_steps, equalize, options)
        _require_equal_replicas(modules, self._communicator)
        self._groups = {name: _Group(self, name) for name in modules}
        for name, module in modules.items():
            module.set_all_reduce_hook(self._groups[name])

    @property
    def steps(self) -> int:
        """The largest number of averages of any parameter group."""
        return max(group.steps for group in self._groups.values())

    @property
    def info(self) -> HookInfo:
        """Bytes that this rank has sent to other replicas, and memory. Local."""
        return self._info(average for group in self._groups.values() for average in group.averages())

    def state_dict(self) -> dict:
        """This rank's errors, for torch.save: each rank saves its own. Local."""
        return {name: group.state() for name, group in self._groups.items()}

    def load_state_dict(self, state: dict) -> None:
        """Goes on from what `state_dict` returned on this rank. To be called on every rank.

        A parameter group's error is loaded when its gradients are averaged next. Raises ValueError for a state of a
        model that is sharded in another way.
        """
        if set(state) != set(self._groups):
            raise ValueError(f"the state has parameter groups {sorted(state)}; {sorted(self._groups)} wanted")
        self._bytes_before = self.info.bytes_sent
        for name, group in self._groups.items():
            group.load(state[name])


class _Group:
    """One parameter group's hook. FSDP hands it the gradients of those parameters that have any, in one buffer."""

    def __init__(self, hook: FsdpHook, name: str):
        self.steps = 0
        self._hook = hook
        self._name = name
        self._averages: Dict[int, Average] = {}  # by number of elements
        self._loaded: Dict[int, dict] = {}

    def __call__(self, gradients) -> None:
        count = gradients.numel()
        average = self._averages.get(count)
        if average is None:
            average = self._averages[count] = self._hook._made(gradients)
        if count in self._loaded:
            average.unpack(self._loaded.pop(count))
        average.run(gradients, exact=self.steps < self._hook.warmup_steps)
        self.steps += 1

    def averages(self) -> Iterable[Average]:
        return self._averages.values()

    def state(self) -> Tuple[int, Dict[int, dict]]:
        packed = {count: average.packed() for count, average in self._averages.items()}
        return self.steps, {**packed, **self._loaded}

    def load(self, state) -> None:
        self.steps, loaded = state
        self._averages.clear()
        self._loaded = dict(loaded)


def fsdp_hook(
    model,
    replicas=None,
    *,
    communicator: Optional[Communicator] = None,
    warmup_steps: Optional[int] = None,
    equalize: Optional[bool] = None,
    **options,
) -> FsdpHook:
    """Averages gradients between replicas of an FSDP2 model, sending few bits for each element. Collective; blocks.

        mesh = init_device_mesh("cuda", (hosts, gpus), mesh_dim_names=("replicate", "shard"))
        fully_shard(model, mesh=mesh["shard"])             # one replica; not mesh: its averages would be FSDP's own
        hook = onebit.torch.fsdp_hook(model, mesh["replicate"].get_group())

      model         a module that `fully_shard` was applied to, to it or to modules in it
      replicas      process group of the ranks that hold the same shard of each replica; None: the default group, where
                    each rank holds a whole replica
      communicator  in place of a group: an onebit communicator of the same ranks
      warmup_steps  averages that are exact, of each parameter group, before the first compressed one; None: as
                    HookState's
      equalize      as HookState's
      options       those of `onebit.Allreduce`: algorithm, codec, scale, group, kept, value_bits,
                    rounding, levels, error_type, check, threads. Shards are no matrices: "powersgd" is refused

    FSDP calls the hook after it has averaged inside a replica, in its stream for that, with gradients of the policy's
    reduce_dtype. Averages of another type than float32 are formed in float32, errors are float32, and the result is
    rounded. Gradients that are accumulated with set_requires_gradient_sync(False) are averaged once, in the
    last backward pass. A divisor of set_gradient_divide_factor is that of one replica.

    Raises RuntimeError for a PyTorch without FSDPModule.set_all_reduce_hook, ValueError for a model without FSDP2 or
    one that was sharded over the replicas' dimension, too, and Mismatch on every rank if replicas' parameters
    differ.
    """
    return FsdpHook(model, replicas, communicator, warmup_steps, equalize, options)


def module_type() -> Optional[type]:
    """FSDPModule, if it can be given an all-reduce."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except Exception:  # Debian 12's can't be imported: its PyTorch is older than its Python
        return None
    return FSDPModule if hasattr(FSDPModule, "set_all_reduce_hook") else None


def _sharded(model) -> dict:
    """FSDP2's modules by name."""
    fsdp_module = module_type()
    if not fsdp_module:
        raise RuntimeError(f"PyTorch {torch.__version__} has no FSDPModule.set_all_reduce_hook, which this needs")
    modules = {name: module for name, module in model.named_modules() if isinstance(module, fsdp_module)}
    if not modules:
        raise ValueError("fully_shard was applied to no module of the model")
    for name, parameter in model.named_parameters():
        placements: Any = getattr(parameter, "placements", ())
        if len(placements) > 1 and placements[0].is_replicate():
            raise ValueError(
                f"{name} is sharded over a mesh with replicas: give fully_shard the shards' dimension alone"
            )
    return modules


def _require_equal_replicas(modules: dict, comm: Communicator) -> None:
    """Skips parameters that have no values yet (on the meta device)."""
    parameters = {id(p): p for module in modules.values() for p in module.parameters()}.values()
    shards = [p.to_local() for p in parameters if hasattr(p, "to_local") and not p.is_meta]
    shards = [shard for shard in shards if shard.numel() > 0]
    if shards:
        _start.require_equal(shards, comm)
