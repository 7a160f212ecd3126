# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers from DeepSpeed's configuration, of which DeepSpeed 0.19.6 was the last to have 1-bit optimizers.

docs/from-deepspeed.md has every key.
"""

import json
import warnings
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Type, Union

from onebit.torch._optimizer import FusedOptimizer
from onebit.torch.optimizers import OneBitAdam, OneBitLamb, ZeroOneAdam

# DeepSpeed's 1-bit optimizers take these keys, but always behave as with the value here.
_WITHOUT_MEANING = {
    "bias_correction": False,
    "eps_inside_sqrt": False,
    "amsgrad": False,
    "cuda_aware": None,
    "comm_backend_name": None,
}
_SAME = {name: name for name in ("lr", "betas", "eps", "weight_decay", "max_grad_norm")}


class _Kind(NamedTuple):
    """The class, and the settings, of a type of DeepSpeed's here."""

    optimizer: Type[FusedOptimizer]
    renamed: Dict[str, str]
    """Arguments here by keys of "params"."""
    without_meaning: Dict[str, Any] = {}
    """Keys of this type alone, with the values that this library has built in."""


_KINDS = {
    "onebitadam": _Kind(OneBitAdam, {"freeze_step": "freeze_step"}),
    "onebitlamb": _Kind(
        OneBitLamb,
        {
            "freeze_step": "freeze_step",
            "min_coeff": "min_trust",
            "max_coeff": "max_trust",
            "coeff_beta": "trust_beta",
        },
        {"factor_max": 4.0, "factor_min": 0.5, "factor_threshold": 0.1},
    ),
    "zerooneadam": _Kind(
        ZeroOneAdam,
        {
            "var_freeze_step": "freeze_step",
            "var_update_scaler": "variance_updates",
            "local_step_scaler": "local_step_scaler",
            "local_step_clipper": "local_steps",
        },
    ),
}
# What DeepSpeed does without these keys.
_FREEZE_STEP = 100000
_LOCAL_STEP_SCALER = 32678

# Sections that change the training but are no optimizer's.
_OF_THE_LOOP = (
    "activation_checkpointing",
    "amp",
    "bf16",
    "bfloat16",
    "communication_data_type",
    "compression_training",
    "curriculum_learning",
    "data_efficiency",
    "fp16",
    "gradient_accumulation_steps",
    "gradient_predivide_factor",
    "prescale_gradients",
    "progressive_layer_drop",
    "scheduler",
    "sparse_gradients",
    "torch_autocast",
)
_INACTIVE: tuple = (None, False, 0, 1, {})


def from_deepspeed(params, config: Union[str, Path, dict], **options) -> FusedOptimizer:
    """The optimizer that a DeepSpeed configuration describes. Collective, as the optimizer's own creation is.

      params   parameters, or dictionaries of them. "non_freeze" of 1-bit Adam's groups becomes no_compress
      config   the dictionary, or the name of a JSON file: {"optimizer": {"type": "OneBitAdam", "params": {...}}, ...};
               the types are OneBitAdam, OneBitLamb and ZeroOneAdam. "gradient_clipping" is taken, too
      options  other arguments of the optimizer: group, communicator, freeze_step, ... They win over the configuration

    Warns once, of keys that have no meaning here and of sections that are the training loop's. Raises ValueError for
    another type, a key that the type doesn't have, "auto" that no option replaces, AMSGrad, and ZeRO.
    DeepSpeed doesn't correct the bias of the moments; neither does this optimizer (bias_correction=True does). Without
    a freeze step it freezes after 100000 steps; freeze_step="auto" finds one. docs/from-deepspeed.md says what else
    differs.
    """
    settings = config if isinstance(config, dict) else _read(Path(config))
    block = settings.get("optimizer") or {}
    name = str(block.get("type", "")).lower()
    if name not in _KINDS:
        raise ValueError(f"optimizer type {block.get('type')!r}; OneBitAdam, OneBitLamb or ZeroOneAdam wanted")
    kind = _KINDS[name]
    given = dict(block.get("params") or {})
    _refuse(kind, block["type"], given, settings)
    arguments = {**_translated(kind, given, settings), **options}
    _refuse_auto(kind, arguments)
    groups, ignored_of_groups = _groups(params)
    _warn(_ignored(kind, given) + ignored_of_groups, settings, arguments)
    return kind.optimizer(groups, **arguments)


def _read(path: Path) -> dict:
    """A file as DeepSpeed reads it: JSON, or with comments and the like where hjson is installed."""
    text = path.read_text()
    try:
        return json.loads(text)
    except ValueError as error:
        try:
            import hjson  # type: ignore[import-not-found]
        except ImportError:
            raise ValueError(f"{path} is not JSON: {error}. If it is Hjson, install hjson") from None
        return hjson.loads(text)


def _refuse(kind: _Kind, name: str, given: dict, settings: dict) -> None:
    """Raises ValueError for settings that DeepSpeed itself refuses: such a configuration has never trained anything."""
    known = {*_SAME, *kind.renamed, *kind.without_meaning, *_WITHOUT_MEANING}
    unknown = sorted(set(given) - known)
    if unknown:
        raise ValueError(f"{name} has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    if given.get("amsgrad"):
        raise ValueError(f"amsgrad: {name} has no AMSGrad variant, here or in DeepSpeed")
    zero = settings.get("zero_optimization") or {}
    stage = zero.get("stage", 0) if isinstance(zero, dict) else 1
    if stage != 0:
        raise ValueError(
            f"zero_optimization.stage {stage}: {name} needs whole gradients and moments on every rank, here and in "
            "DeepSpeed. Set the stage to 0"
        )


def _translated(kind: _Kind, given: dict, settings: dict) -> Dict[str, Any]:
    """Arguments of the optimizer, "auto" among them."""
    arguments: Dict[str, Any] = {"bias_correction": False, "freeze_step": _FREEZE_STEP}
    if kind.optimizer is ZeroOneAdam:
        arguments["local_step_scaler"] = _LOCAL_STEP_SCALER
    names = {**_SAME, **kind.renamed}
    arguments.update({names[key]: value for key, value in given.items() if key in names})
    if kind.optimizer is ZeroOneAdam and arguments["freeze_step"] != "auto":
        arguments["freeze_step"] += 1  # DeepSpeed freezes a step later than its key says
    if settings.get("gradient_clipping"):
        arguments.setdefault("max_grad_norm", settings["gradient_clipping"])
    return arguments


def _refuse_auto(kind: _Kind, arguments: dict) -> None:
    """Raises ValueError for "auto" of a configuration. freeze_step="auto" is an option's, and has a meaning."""
    auto = sorted(name for name, value in arguments.items() if value == "auto" and name != "freeze_step")
    if auto:
        raise ValueError(
            f"auto for {', '.join(auto)}, which Hugging Face's Trainer fills in: "
            f"pass {', '.join(f'{name}=' for name in auto)} to from_deepspeed()"
        )


def _groups(params):
    """The parameter groups with this library's names, and the keys that have no meaning here."""
    params = list(params)
    if not any(isinstance(group, dict) for group in params):
        return params, []
    groups = [dict(group) for group in params]
    ignored = set()
    for group in groups:
        if group.pop("non_freeze", False):
            group["no_compress"] = True
        ignored |= {"exp_avg_mask"} & set(group)
        group.pop("exp_avg_mask", None)
    return groups, sorted(ignored)


def _ignored(kind: _Kind, given: dict) -> List[str]:
    """Keys that ask for something that doesn't exist here."""
    harmless = {**_WITHOUT_MEANING, **kind.without_meaning}
    return [key for key, value in given.items() if key in harmless and value != harmless[key]]


def _warn(ignored: List[str], settings: dict, arguments: dict) -> None:
    """One warning for all settings that have another effect here, or that other code must follow."""
    parts = []
    if ignored:
        parts.append(f"{', '.join(sorted(ignored))} have no meaning for onebit")
    of_the_loop = [name for name in _OF_THE_LOOP if _is_active(settings.get(name))]
    if of_the_loop:
        parts.append(f"{', '.join(of_the_loop)} are the training loop's, or DeepSpeed's engine's, to follow")
    if "gradient_clipping" not in settings and "max_grad_norm" not in arguments:
        parts.append("without gradient_clipping nothing is clipped, where DeepSpeed 0.19.6 clips at 1.0")
    if parts:
        warnings.warn(f"of DeepSpeed's configuration, {'; '.join(parts)} (docs/from-deepspeed.md)", stacklevel=3)


def _is_active(section) -> bool:
    if isinstance(section, dict) and "enabled" in section:
        return bool(section["enabled"])
    return section not in _INACTIVE
