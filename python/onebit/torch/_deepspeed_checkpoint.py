# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Weights and moments from a checkpoint that DeepSpeed has written.

DeepSpeed writes DIRECTORY/TAG/mp_rank_00_model_states.pt, and the last tag into DIRECTORY/latest. In that file "module"
has the weights, and "optimizer" the moments in one of three forms:
  float32         torch's own: {"state": ..., "param_groups": ...}
  "unfused"       1-bit LAMB in 16 bits: the same within, and a list of float32 weights for each group ("fp32_groups")
  "fused"         1-bit and 0/1 Adam in 16 bits: likewise, but a group's parameters are one flat tensor
                  ("fp32_groups_flat")
In 16 bits a group has only the parameters that require a gradient.
"""

from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

import torch

from onebit.torch import _adam_state, _start
from onebit.torch._adam_state import MOMENTS
from onebit.torch._communicator import attempt
from onebit.torch._optimizer import FusedOptimizer
from onebit.torch._saved import SETTINGS

# Of a parameter's state in the file: taken over, or sizes of DeepSpeed's own buffers.
_BOOKKEEPING = {"step", "tensor_size", "corrected_tensor_size", "server_chunk_size", *MOMENTS}


class DeepSpeedCheckpoint(NamedTuple):
    """What `load_deepspeed_checkpoint` has found."""

    path: Path
    """The file."""
    steps: int
    """Steps that the moments have made, as DeepSpeed counts them: its first one, or a first one without a batch, is
    empty."""
    left_out: Tuple[str, ...]
    """What DeepSpeed keeps of a parameter beside the moments, and what begins anew here."""
    rest: dict
    """All else in the file: "global_steps", "lr_scheduler", "loss_scale", and what the program had DeepSpeed save."""


class _Saved(NamedTuple):
    """What is to be taken over. Numbers count the parameters of all of the optimizer's groups."""

    weights: Dict[str, torch.Tensor]
    masters: Dict[int, torch.Tensor]
    """float32 weights of parameters of 16 bits."""
    moments: Dict[int, dict]
    settings: List[dict]
    """Of each group."""
    result: DeepSpeedCheckpoint

    def tensors(self) -> Iterable[torch.Tensor]:
        yield from self.weights.values()
        yield from self.masters.values()
        for state in self.moments.values():
            yield from (state[name] for name in MOMENTS)


def load_deepspeed_checkpoint(
    path: Union[str, Path], model, optimizer: FusedOptimizer, *, tag: Optional[str] = None, weights_only: bool = True
) -> DeepSpeedCheckpoint:
    """Takes weights, moments, number of steps and settings from a checkpoint of DeepSpeed's. Collective; blocks.

      path          the folder that DeepSpeed's save_checkpoint was given, that of a tag in it, or the file
      model         the module whose weights are overwritten, as it was given to deepspeed.initialize
      optimizer     made of the model's parameters, in the same groups and order; before the freeze
      tag           None: the last one
      weights_only  as torch.load's. False runs what the file says: for files that you trust

    float32 weights of a training in 16 bits become the masters. Errors are not taken: the file has rank 0's alone, and
    DeepSpeed drops them, too. Past freeze_step the next step is exact, and those after it are compressed.
    Raises on every rank, and changes nothing, if any rank can't read the file, or what it finds there doesn't fit: that
    rank raises FileNotFoundError or ValueError, the others InvalidArgument. Mismatch if the ranks' files differ.
    """
    communicator = optimizer._communicator
    saved, failure = attempt(lambda: _read(_file(Path(path), tag), model, optimizer, weights_only))
    _start.agree(communicator, failure)
    _start.require_equal([tensor.contiguous() for tensor in saved.tensors()], communicator)
    _take_over(saved, model, optimizer)
    return saved.result


def _take_over(saved: _Saved, model, optimizer: FusedOptimizer) -> None:
    model.load_state_dict(saved.weights, strict=False)  # missing weights have been checked
    tensors = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    with torch.no_grad():
        for number, master in saved.masters.items():
            tensors[number].copy_(master)
    for group, settings in zip(optimizer.param_groups, saved.settings):
        group.update(settings)
    if saved.moments:
        groups = torch.optim.Optimizer.state_dict(optimizer)["param_groups"]
        optimizer.load_state_dict({"state": saved.moments, "param_groups": groups})
        for parameter in optimizer._parameters:
            if parameter.master is not None and parameter.index in saved.masters:
                parameter.master.copy_(_adam_state.in_order(parameter, saved.masters[parameter.index]))


# ---- the file ----


def _file(path: Path, tag: Optional[str]) -> Path:
    """The file of a checkpoint that isn't cut over ranks."""
    if path.is_file():
        return path
    if tag is None and (path / "latest").is_file():
        tag = (path / "latest").read_text().strip()
    folder = path if tag is None else path / tag
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    if any(folder.glob("*zero_pp_rank_*")):
        raise ValueError(
            f"{folder} is a checkpoint of ZeRO, whose moments are cut over the ranks (zero_pp_rank_*): they can't be "
            "taken over. DeepSpeed's zero_to_fp32.py makes one file of its weights"
        )
    files = sorted(folder.glob("mp_rank_*_model_states.pt"))
    if not files:
        raise FileNotFoundError(f"{folder} has no mp_rank_00_model_states.pt: it is no checkpoint of DeepSpeed's")
    if len(files) > 1:
        raise ValueError(f"{folder} is of a model that is cut over {len(files)} ranks: pass this rank's mp_rank_ file")
    return files[0]


def _loaded(file: Path, weights_only: bool) -> dict:
    try:
        content = torch.load(file, map_location="cpu", weights_only=weights_only)
    except Exception as error:
        hint = ". If you trust the file, weights_only=False reads objects of any kind" if weights_only else ""
        raise ValueError(f"{file} can't be read: {error}{hint}") from error
    if not isinstance(content, dict) or not isinstance(content.get("module"), dict):
        raise ValueError(f"{file} has no module's weights: it is no checkpoint of DeepSpeed's")
    if not isinstance(content.get("optimizer"), dict):
        raise ValueError(f"{file} has no optimizer's state")
    return content


# ---- what is in it ----


def _read(file: Path, model, optimizer: FusedOptimizer, weights_only: bool) -> _Saved:
    """What the file has for this model and optimizer. Changes neither."""
    if optimizer._fused is not None and optimizer.info.frozen:
        raise ValueError("the optimizer's variance is frozen: load into a new optimizer")
    content = _loaded(file, weights_only)
    _check_weights(content["module"], model)
    outer = content["optimizer"]
    inner = outer.get("optimizer_state_dict", outer)
    if len(inner["param_groups"]) != len(optimizer.param_groups):
        raise ValueError(
            f"{file} has {len(inner['param_groups'])} parameter groups; the optimizer has {len(optimizer.param_groups)}"
        )
    masters: Dict[int, torch.Tensor] = {}
    moments: Dict[int, dict] = {}
    for group, (numbers, shapes) in enumerate(_members(optimizer, trainable=inner is not outer)):
        where = f"{file}: parameter group {group}"
        masters.update(zip(numbers, _masters(outer, group, shapes, where)))
        states = _states(inner, group, shapes, where, flat="fp32_groups_flat" in outer)
        moments.update((number, state) for number, state in zip(numbers, states) if state)
    settings = [{name: group[name] for name in SETTINGS} for group in inner["param_groups"]]
    return _Saved(content["module"], masters, moments, settings, _result(file, content, outer, inner, moments))


def _result(file: Path, content: dict, outer: dict, inner: dict, moments: Dict[int, dict]) -> DeepSpeedCheckpoint:
    steps = {int(state["step"]) for state in moments.values()}
    if len(steps) > 1:
        raise ValueError(f"{file}: the parameters have made different numbers of steps: {sorted(steps)}")
    left_out = {key for state in inner["state"].values() for key in state if key not in _BOOKKEEPING}
    rest = {key: value for key, value in content.items() if key not in ("module", "optimizer")}
    if "cur_scale" in outer:
        rest["loss_scale"] = outer["cur_scale"]
    return DeepSpeedCheckpoint(file, max(steps, default=0), tuple(sorted(left_out)), rest)


def _check_weights(saved: dict, model) -> None:
    """Raises ValueError if the weights are of another model. Weights of frozen parameters may be missing."""
    wanted = model.state_dict()
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    unknown = [name for name in saved if name not in wanted]
    missing = [name for name in wanted if name not in saved and name not in frozen]
    if unknown or missing:
        raise ValueError(f"the checkpoint is of another model: it has {unknown or 'no'} more, and lacks {missing}")
    for name, values in saved.items():
        if values.shape != wanted[name].shape:
            raise ValueError(
                f"{name} is {tuple(values.shape)} in the checkpoint, {tuple(wanted[name].shape)} in the model"
            )


def _members(optimizer: FusedOptimizer, trainable: bool) -> Iterable[Tuple[List[int], List[torch.Size]]]:
    """Numbers and shapes of each group's parameters; of those that require a gradient, if `trainable`."""
    first = 0
    for group in optimizer.param_groups:
        tensors = list(enumerate(group["params"], first))
        first += len(tensors)
        members = [(number, tensor.shape) for number, tensor in tensors if tensor.requires_grad or not trainable]
        yield [number for number, _ in members], [shape for _, shape in members]


def _masters(outer: dict, group: int, shapes: List[torch.Size], where: str) -> List[torch.Tensor]:
    """float32 weights of a group; none if the training was in float32."""
    if "fp32_groups_flat" in outer:
        return _pieces(outer["fp32_groups_flat"][group].detach(), shapes, where)
    if "fp32_groups" in outer:
        return _fitting([master.detach() for master in outer["fp32_groups"][group]], shapes, where)
    return []


def _states(inner: dict, group: int, shapes: List[torch.Size], where: str, flat: bool) -> List[dict]:
    """Step and moments of each of a group's parameters; nothing of those that have made no step."""
    states = [inner["state"].get(number, {}) for number in inner["param_groups"][group]["params"]]
    if flat:
        (whole,) = states
        cut = {name: _pieces(whole[name], shapes, where) for name in MOMENTS if name in whole}
        states = [{"step": whole.get("step"), **dict(zip(cut, values))} for values in zip(*cut.values())]
    elif len(states) != len(shapes):
        raise ValueError(f"{where} has {len(states)} parameters; the optimizer's has {len(shapes)}")
    for state, shape in zip(states, shapes):
        if state:
            _fitting([state[name] for name in MOMENTS], [shape, shape], where)
    return [{name: state[name] for name in ("step", *MOMENTS)} if state else {} for state in states]


def _pieces(flat: torch.Tensor, shapes: List[torch.Size], where: str) -> List[torch.Tensor]:
    """A flat tensor's elements as the parameters that it was made of."""
    counts = [shape.numel() for shape in shapes]
    if sum(counts) != flat.numel():
        raise ValueError(f"{where} has {flat.numel()} elements; the optimizer's has {sum(counts)}")
    return [piece.view(shape) for piece, shape in zip(flat.split(counts), shapes)]


def _fitting(tensors: List[torch.Tensor], shapes: List[torch.Size], where: str) -> List[torch.Tensor]:
    found = [tensor.shape for tensor in tensors]
    if found != shapes:
        raise ValueError(
            f"{where} has tensors of {[*map(tuple, found)]}; the optimizer's are of {[*map(tuple, shapes)]}"
        )
    return tensors
