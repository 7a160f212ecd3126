# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers from DeepSpeed's configuration, of which DeepSpeed 0.19.6 was the last to have 1-bit optimizers."""

import json
import warnings
from pathlib import Path
from typing import Any, Dict, Union

from onebit.torch._optimizer import FusedOptimizer
from onebit.torch.optimizers import OneBitAdam, OneBitLamb, ZeroOneAdam

_KINDS = {"onebitadam": OneBitAdam, "onebitlamb": OneBitLamb, "zerooneadam": ZeroOneAdam}
_SAME = {"lr", "betas", "eps", "weight_decay", "freeze_step", "max_grad_norm"}
_RENAMED = {
    "min_coeff": "min_trust",
    "max_coeff": "max_trust",
    "coeff_beta": "trust_beta",
    "var_update_scaler": "variance_updates",
    "local_step_scaler": "local_step_scaler",
    "local_step_clipper": "local_steps",
}
# What DeepSpeed does without these keys.
_FREEZE_STEP = 100000
_LOCAL_STEP_SCALER = 32678


def from_deepspeed(params, config: Union[str, Path, dict], **options) -> FusedOptimizer:
    """The optimizer that a DeepSpeed configuration describes. Warns of keys that have no meaning here.

      config   the dictionary, or the name of a JSON file: {"optimizer": {"type": "OneBitAdam", "params": {...}}, ...};
               the types are OneBitAdam, OneBitLamb and ZeroOneAdam. "gradient_clipping" is taken, too
      options  other arguments of the optimizer: group, communicator, freeze_step, ...

    DeepSpeed doesn't correct the bias of the moments; nor does this (bias_correction=True does). It freezes after
    100000 steps if it isn't told when; freeze_step="auto" finds out. docs/OPTIMIZERS.md says what else differs.
    """
    settings = config if isinstance(config, dict) else json.loads(Path(config).read_text())
    block = settings.get("optimizer", {})
    kind = _KINDS.get(str(block.get("type", "")).lower())
    if kind is None:
        raise ValueError(f"optimizer type {block.get('type')!r}; OneBitAdam, OneBitLamb or ZeroOneAdam wanted")
    translated = _translated(kind, dict(block.get("params", {})))
    if settings.get("gradient_clipping"):
        translated.setdefault("max_grad_norm", settings["gradient_clipping"])
    return kind(params, **{**translated, **options})


def _translated(kind, params: Dict[str, Any]) -> Dict[str, Any]:
    arguments: Dict[str, Any] = {"bias_correction": False, "freeze_step": _FREEZE_STEP}
    if kind is ZeroOneAdam:
        arguments["freeze_step"] = params.pop("var_freeze_step", _FREEZE_STEP) + 1
        arguments["local_step_scaler"] = _LOCAL_STEP_SCALER
    left_out = []
    for key, value in params.items():
        if key in _SAME or key in _RENAMED:
            arguments[_RENAMED.get(key, key)] = value
        else:
            left_out.append(key)
    if left_out:
        warnings.warn(f"DeepSpeed's {', '.join(sorted(left_out))} have no meaning for onebit", stacklevel=3)
    return arguments
