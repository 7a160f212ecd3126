# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Moments in the form in which torch.optim.Adam has them: read, and taken over."""

from typing import Dict, List

import torch

from onebit.optimizer import Optimizer
from onebit.torch import _dense
from onebit.torch._parameter import Parameter

MOMENTS = ("exp_avg", "exp_avg_sq")


def read(fused: Optimizer, number: int, parameter: Parameter) -> Dict[str, torch.Tensor]:
    """Both moments of a parameter, float32 of its shape."""
    moments = {}
    for name in MOMENTS:
        moments[name] = _like(parameter)
        _dense.flat(moments[name]).copy_(torch.from_numpy(fused.get_state(number, name)))
    return moments


def is_adams(state_dict) -> bool:
    """Whether these are the moments of torch.optim.Adam or AdamW, after a step at least."""
    states = state_dict.get("state", {}).values()
    return bool(states) and all("step" in state and set(MOMENTS) <= set(state) for state in states)


def take_over(fused: Optimizer, parameters: List[Parameter], state_dict) -> None:
    """Sets number of steps and moments. Raises ValueError for parameters that have made different numbers of steps."""
    states = state_dict["state"]
    steps = {int(state["step"]) for state in states.values()}
    if len(steps) > 1:
        raise ValueError(f"the parameters have made different numbers of steps: {sorted(steps)}")
    fused.set_steps(steps.pop())
    for number, parameter in enumerate(parameters):
        for name in MOMENTS if parameter.index in states else ():
            fused.set_state(number, name, in_order(parameter, states[parameter.index][name]).numpy())


def in_order(parameter: Parameter, values: torch.Tensor) -> torch.Tensor:
    """Values of the parameter's shape as float32 in the host's memory, flat, its elements in the parameter's order."""
    return _dense.flat(_like(parameter).copy_(values))


def _like(parameter: Parameter) -> torch.Tensor:
    """A float32 tensor in the host's memory, its elements in the parameter's order."""
    tensor = parameter.tensor.detach()
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=torch.float32)
