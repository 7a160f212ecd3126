# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
import json

import pytest

import onebit

torch = pytest.importorskip("torch")
import onebit.torch  # noqa: E402


def made(block, **more):
    (comm,) = onebit.loopback(1)
    parameters = [torch.nn.Parameter(torch.ones(100))]
    return onebit.torch.from_deepspeed(parameters, {"optimizer": block, **more}, communicator=comm)


def test_one_bit_adam_from_a_file(tmp_path):
    path = tmp_path / "ds_config.json"
    params = {"lr": 4e-4, "betas": [0.8, 0.9], "eps": 1e-6, "weight_decay": 0.1, "freeze_step": 400}
    path.write_text(json.dumps({"optimizer": {"type": "OneBitAdam", "params": params}, "gradient_clipping": 1.0}))
    (comm,) = onebit.loopback(1)
    optimizer = onebit.torch.from_deepspeed([torch.nn.Parameter(torch.ones(100))], str(path), communicator=comm)
    assert type(optimizer) is onebit.torch.OneBitAdam
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (4e-4, [0.8, 0.9], 1e-6, 0.1)
    assert optimizer.options["freeze_step"] == 400
    assert optimizer.options["max_grad_norm"] == 1.0
    assert optimizer.options["bias_correction"] is False
    optimizer.param_groups[0]["params"][0].grad = torch.ones(100)
    optimizer.step()


def test_one_bit_lamb():
    params = {"lr": 1e-3, "max_coeff": 0.3, "min_coeff": 0.01, "coeff_beta": 0.8}
    optimizer = made({"type": "OneBitLamb", "params": params})
    assert type(optimizer) is onebit.torch.OneBitLamb
    assert optimizer.options["max_trust"] == 0.3
    assert optimizer.options["trust_beta"] == 0.8
    assert optimizer.options["freeze_step"] == 100000


def test_zero_one_adam():
    params = {"var_freeze_step": 10, "var_update_scaler": 8, "local_step_scaler": 100, "local_step_clipper": 4}
    optimizer = made({"type": "zerooneadam", "params": params})
    assert type(optimizer) is onebit.torch.ZeroOneAdam
    assert optimizer.options["freeze_step"] == 11  # DeepSpeed freezes a step later than its name says
    assert optimizer.options["variance_updates"] == 8
    assert optimizer.options["local_steps"] == 4


def test_keys_without_a_meaning_are_named():
    params = {"cuda_aware": False, "comm_backend_name": "nccl", "factor_max": 4.0}
    with pytest.warns(UserWarning, match="comm_backend_name, cuda_aware, factor_max"):
        made({"type": "OneBitLamb", "params": params})


@pytest.mark.parametrize("block", [{}, {"type": "Adam"}, {"type": "AdamW", "params": {"lr": 1}}])
def test_other_optimizers_are_refused(block):
    with pytest.raises(ValueError, match="OneBitAdam"):
        made(block)
