# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
import json
import warnings

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


AS_IN_TUTORIALS = {
    "train_batch_size": 4096,
    "train_micro_batch_size_per_gpu": 16,
    "steps_per_print": 1000,
    "wall_clock_breakdown": False,
    "prescale_gradients": False,
    "gradient_clipping": 1.0,
    "fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 16},
}
NCCL = {"cuda_aware": False, "comm_backend_name": "nccl"}


@pytest.mark.parametrize(
    "kind, params, options",
    [
        ("OneBitAdam", {"freeze_step": 23000, "bias_correction": False}, {"freeze_step": 23000}),
        (
            "OneBitLamb",
            {"max_coeff": 0.3, "min_coeff": 0.01, "freeze_step": 1000, "coeff_beta": 0.9, "factor_threshold": 0.1},
            {"max_trust": 0.3, "min_trust": 0.01, "freeze_step": 1000, "trust_beta": 0.9},
        ),
        (
            "ZeroOneAdam",
            {"var_freeze_step": 12500, "var_update_scaler": 16, "local_step_scaler": 32678, "local_step_clipper": 16},
            {"freeze_step": 12501, "variance_updates": 16, "local_step_scaler": 32678, "local_steps": 16},
        ),
    ],
)
def test_configurations_as_they_are_in_tutorials(kind, params, options):
    with pytest.warns(UserWarning, match="comm_backend_name, cuda_aware have no meaning for onebit; fp16 are"):
        optimizer = made(
            {"type": kind, "params": {"lr": 4e-4, "weight_decay": 0.01, **params, **NCCL}}, **AS_IN_TUTORIALS
        )
    assert {**optimizer.options, **options, "max_grad_norm": 1.0} == optimizer.options
    assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"]) == (4e-4, 0.01)
    optimizer.param_groups[0]["params"][0].grad = torch.ones(100)
    optimizer.step()


def test_keys_without_a_meaning_are_named_once():
    params = {"cuda_aware": False, "comm_backend_name": "nccl", "factor_max": 5.0, "bias_correction": True}
    with pytest.warns(UserWarning, match="bias_correction, comm_backend_name, cuda_aware, factor_max have") as caught:
        made({"type": "OneBitLamb", "params": params}, fp16={"enabled": True}, gradient_accumulation_steps=4)
    assert len(caught) == 1
    assert "fp16, gradient_accumulation_steps are the training loop's" in str(caught[0].message)


def test_what_changes_nothing_is_not_named():
    params = {"bias_correction": False, "amsgrad": False, "eps_inside_sqrt": False, "factor_max": 4.0}
    sections = {"fp16": {"enabled": False}, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 0}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made({"type": "OneBitLamb", "params": params}, gradient_clipping=0.0, steps_per_print=10, **sections)


def test_absent_clipping_is_named():
    with pytest.warns(UserWarning, match="0.19.6 clips at 1.0"):
        assert made({"type": "OneBitAdam"}).options["max_grad_norm"] == 0.0


def test_auto_of_hugging_face():
    block = {"type": "OneBitAdam", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}}
    with pytest.raises(ValueError, match="for betas, eps, lr, max_grad_norm, weight_decay, .*pass betas=, eps=, lr="):
        made(block, gradient_clipping="auto")
    filled_in = {"lr": 1e-4, "betas": (0.8, 0.9), "eps": 1e-7, "weight_decay": 0.1, "max_grad_norm": 2.0}
    (comm,) = onebit.loopback(1)
    optimizer = onebit.torch.from_deepspeed(
        [torch.nn.Parameter(torch.ones(100))],
        {"optimizer": block, "gradient_clipping": "auto"},
        communicator=comm,
        freeze_step="auto",
        **filled_in,
    )
    assert optimizer.param_groups[0]["lr"] == 1e-4
    assert optimizer.options["max_grad_norm"] == 2.0 and optimizer.options["freeze_step"] == "auto"


def test_parameter_groups_are_translated():
    (comm,) = onebit.loopback(1)
    groups = [
        {"params": [torch.nn.Parameter(torch.ones(100))], "weight_decay": 0.1, "exp_avg_mask": torch.ones(100)},
        {"params": [torch.nn.Parameter(torch.ones(30))], "non_freeze": True},
    ]
    with pytest.warns(UserWarning, match="exp_avg_mask have no meaning"):
        optimizer = onebit.torch.from_deepspeed(groups, {"optimizer": {"type": "OneBitAdam"}}, communicator=comm)
    assert [group["no_compress"] for group in optimizer.param_groups] == [False, True]
    assert "exp_avg_mask" in groups[0]  # the caller's own are left alone


@pytest.mark.parametrize("block", [{}, {"type": "Adam"}, {"type": "AdamW", "params": {"lr": 1}}, {"params": {}}])
def test_other_optimizers_are_refused(block):
    with pytest.raises(ValueError, match="OneBitAdam"):
        made(block)


@pytest.mark.parametrize(
    "kind, params, more, text",
    [
        ("OneBitAdam", {"freze_step": 400}, {}, "OneBitAdam has no freze_step; it has .*freeze_step"),
        ("OneBitAdam", {"var_freeze_step": 4}, {}, "has no var_freeze_step"),
        ("ZeroOneAdam", {"freeze_step": 4}, {}, "has no freeze_step"),
        ("OneBitAdam", {"amsgrad": True}, {}, "AMSGrad"),
        ("OneBitLamb", {}, {"zero_optimization": {"stage": 1}}, "stage 1"),
        ("OneBitLamb", {}, {"zero_optimization": True}, "stage 1"),
    ],
)
def test_what_deepspeed_refuses_is_refused(kind, params, more, text):
    with pytest.raises(ValueError, match=text):
        made({"type": kind, "params": params}, **more)


def test_a_file_with_comments(tmp_path):
    path = tmp_path / "ds_config.json"
    path.write_text('{"optimizer": {"type": "OneBitAdam"}, "gradient_clipping": 1.0, # as before\n}')
    parameters = [torch.nn.Parameter(torch.ones(100))]
    (comm,) = onebit.loopback(1)
    try:
        import hjson  # noqa: F401
    except ImportError:
        with pytest.raises(ValueError, match="ds_config.json is not JSON: .*install hjson"):
            onebit.torch.from_deepspeed(parameters, path, communicator=comm)
    else:
        assert onebit.torch.from_deepspeed(parameters, path, communicator=comm).options["max_grad_norm"] == 1.0


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        onebit.torch.from_deepspeed([torch.nn.Parameter(torch.ones(100))], tmp_path / "none.json")
