# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that DeepSpeed 0.19.6 has written: tools/deepspeed_checkpoints.py made those in data/deepspeed."""

import importlib.util
import warnings
from pathlib import Path

import pytest
from ranks import on_ranks

import onebit

torch = pytest.importorskip("torch")
import onebit.torch  # noqa: E402

DATA = Path(__file__).parent / "data/deepspeed"
WEIGHTS_ONLY = torch.__version__ >= "2"  # PyTorch 1.13's can't read floats

spec = importlib.util.spec_from_file_location("made_by", DATA.parents[2] / "tools/deepspeed_checkpoints.py")
made_by = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made_by)


class Training:
    """A training that goes on here from one of DeepSpeed's."""

    def __init__(self, comm, kind, dtype=torch.float32, **options):
        self.comm = comm
        self.net = made_by.model().to(dtype)
        for parameter in self.net.parameters():
            parameter.data.zero_()  # what is not loaded shows
        config = {"optimizer": {"type": kind, "params": {"lr": 1.0}}, "gradient_clipping": 0.0}
        options.setdefault("freeze_step", "never")
        self.optimizer = onebit.torch.from_deepspeed(self.net.parameters(), config, communicator=comm, **options)

    def load(self, path, **options):
        options.setdefault("weights_only", WEIGHTS_ONLY)
        return onebit.torch.load_deepspeed_checkpoint(path, self.net, self.optimizer, **options)

    def go(self, begin, end):
        dtype = next(self.net.parameters()).dtype
        for step in range(begin, end):
            inputs, targets = made_by.batch(step, self.comm.rank)
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.net(inputs.to(dtype)).float(), targets).backward()
            self.optimizer.step()
        return self

    def weights(self):
        return {name: values.clone() for name, values in self.net.state_dict().items()}


def content_of(path):
    return torch.load(path, weights_only=WEIGHTS_ONLY)


@pytest.mark.parametrize("kind", ["OneBitAdam", "OneBitLamb", "ZeroOneAdam"])
@pytest.mark.parametrize("precision, tolerance", [("float32", 1e-5), ("bf16", 4e-3)])
def test_goes_on_as_deepspeed_does(kind, precision, tolerance):
    path = DATA / f"{kind}-{precision}.pt"
    saved = content_of(path)

    def run(comm):
        training = Training(comm, kind, torch.bfloat16 if precision == "bf16" else torch.float32)
        found = training.load(path)
        assert found.path == path and found.steps == made_by.STEPS + (precision == "bf16")
        assert found.rest["global_steps"] == made_by.STEPS
        assert "exp_avg" not in found.left_out
        for name, values in training.weights().items():
            assert torch.equal(values, saved["module"][name])
        group = training.optimizer.param_groups[0]
        assert (group["lr"], list(group["betas"])) == (0.01, made_by.PARAMS["betas"])
        return training.go(made_by.STEPS, made_by.STEPS + made_by.MORE).weights()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = on_ranks(2, run)
    for name, values in first.items():
        assert torch.equal(values, second[name])
        torch.testing.assert_close(values.float(), saved["after"][name], rtol=tolerance, atol=tolerance)
        assert not torch.equal(values, saved["module"][name])


@pytest.mark.parametrize("kind", ["OneBitAdam", "OneBitLamb"])  # "fused" and "unfused"
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masters_and_moments_are_the_files(kind, dtype):
    saved = content_of(DATA / f"{kind}-bf16.pt")["optimizer"]

    def run(comm):
        training = Training(comm, kind, dtype)
        training.load(DATA / f"{kind}-bf16.pt")
        parameters = training.optimizer._parameters
        masters = [each.tensor if each.master is None else each.master for each in parameters]
        moments = [training.optimizer.moments(each.tensor)["exp_avg_sq"] for each in parameters]
        return [torch.cat([each.detach().flatten() for each in tensors]) for tensors in (masters, moments)]

    masters, moments = on_ranks(2, run)[1]
    state = saved["optimizer_state_dict"]["state"]
    whole = saved["fp32_groups_flat"] if "fp32_groups_flat" in saved else saved["fp32_groups"][0]
    assert torch.equal(masters, torch.cat([each.detach().flatten() for each in whole]))
    assert torch.equal(moments, torch.cat([each["exp_avg_sq"].flatten() for each in state.values()]))


def test_a_training_that_has_frozen_freezes_after_one_step():
    def run(comm):
        training = Training(comm, "OneBitAdam", freeze_step=3)
        assert "worker_error" in training.load(DATA / "OneBitAdam-float32.pt").left_out
        assert not training.optimizer.info.frozen or training.optimizer.info.steps == made_by.STEPS
        training.go(5, 8)
        assert training.optimizer.info.compressed_rounds == 2
        with pytest.raises(ValueError, match="is frozen: load into a new optimizer"):
            training.load(DATA / "OneBitAdam-float32.pt")

    on_ranks(2, run)


def a_folder(tmp_path, *names, latest=None):
    (tmp_path / "global_step5").mkdir()
    for name in names:
        (tmp_path / "global_step5" / name).write_bytes((DATA / "OneBitAdam-float32.pt").read_bytes())
    if latest:
        (tmp_path / "latest").write_text(latest)
    return tmp_path


@pytest.mark.parametrize(
    "latest, path, options",
    [
        ("global_step5\n", "", {}),
        (None, "", {"tag": "global_step5"}),
        (None, "global_step5", {}),
        (None, "global_step5/mp_rank_00_model_states.pt", {}),
    ],
)
def test_the_ways_to_name_a_checkpoint(tmp_path, latest, path, options):
    folder = a_folder(tmp_path, "mp_rank_00_model_states.pt", latest=latest)
    (comm,) = onebit.loopback(1)
    assert Training(comm, "OneBitAdam").load(folder / path, **options).steps == made_by.STEPS


@pytest.mark.parametrize(
    "names, error, text",
    [
        ([], FileNotFoundError, "has no mp_rank_00_model_states.pt"),
        (["mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"], ValueError, "checkpoint of ZeRO"),
        (["mp_rank_00_model_states.pt", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"], ValueError, "of ZeRO"),
        (["mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"], ValueError, "cut over 2 ranks"),
    ],
)
def test_folders_that_are_refused(tmp_path, names, error, text):
    (comm,) = onebit.loopback(1)
    with pytest.raises(error, match=text):
        Training(comm, "OneBitAdam").load(a_folder(tmp_path, *names, latest="global_step5"))


def changed(**changes):
    def change(content):
        for path, value in changes.items():
            *place, last = path.split("__")
            inside = content
            for key in place:
                inside = inside[int(key) if key.isdigit() else key]
            inside[int(last) if last.isdigit() else last] = value
        return content

    return change


REFUSED = {
    "no dictionary": (lambda content: [1, 2], "no checkpoint of DeepSpeed's"),
    "no module": (changed(module=None), "no module's weights"),
    "no optimizer": (changed(optimizer=None), "no optimizer's state"),
    "another model": (changed(module__more=torch.ones(1)), "has \\['more'\\] more"),
    "another shape": (changed(module={}), "lacks \\['0.weight'"),
    "another size": (changed(**{"module__0.weight": torch.ones(4, 5)}), "0.weight is \\(4, 5\\) in the checkpoint"),
    "groups": (changed(optimizer__param_groups=[]), "has 0 parameter groups; the optimizer has 1"),
    "fewer parameters": (changed(optimizer__param_groups__0__params=[0, 1]), "has 2 parameters; the optimizer's has 4"),
    "moments of another shape": (changed(optimizer__state__1__exp_avg=torch.ones(9)), "tensors of \\[\\(9,\\)"),
    "different steps": (changed(optimizer__state__1__step=4), "different numbers of steps: \\[4, 5\\]"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_does_not_fit_is_refused_on_every_rank_and_changes_nothing(case, tmp_path):
    change, text = REFUSED[case]
    good, bad = DATA / "OneBitAdam-float32.pt", tmp_path / "bad.pt"
    torch.save(change(content_of(good)), bad)

    def run(comm):
        training = Training(comm, "OneBitAdam")
        if comm.rank == 1:
            with pytest.raises(ValueError, match=text):
                training.load(bad)
        else:
            with pytest.raises(onebit.InvalidArgument, match="rank 1: ValueError: "):
                training.load(good)
        assert not any(values.any() for values in training.weights().values())
        assert training.load(good).steps == made_by.STEPS  # goes on

    on_ranks(2, run)


def test_another_kinds_flat_state_is_refused():
    (comm,) = onebit.loopback(1)
    net = torch.nn.Linear(6, 4)
    optimizer = onebit.torch.OneBitAdam(net.parameters(), communicator=comm)
    with pytest.raises(ValueError, match="the checkpoint is of another model"):
        onebit.torch.load_deepspeed_checkpoint(DATA / "OneBitAdam-bf16.pt", net, optimizer, weights_only=WEIGHTS_ONLY)


def test_what_is_no_file_of_torch(tmp_path):
    (tmp_path / "file.pt").write_bytes(b"nothing")
    (comm,) = onebit.loopback(1)
    with pytest.raises(ValueError, match="can't be read"):
        Training(comm, "OneBitAdam").load(tmp_path / "file.pt")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        Training(comm, "OneBitAdam").load(tmp_path / "none")


def test_ranks_with_different_files(tmp_path):
    other = changed(**{"module__0.bias": torch.ones(4)})(content_of(DATA / "OneBitAdam-float32.pt"))
    torch.save(other, tmp_path / "other.pt")

    def run(comm):
        training = Training(comm, "OneBitAdam")
        with pytest.raises(onebit.Mismatch, match="differ between ranks"):
            training.load(tmp_path / "other.pt" if comm.rank else DATA / "OneBitAdam-float32.pt")
        assert not any(values.any() for values in training.weights().values())

    on_ranks(2, run)


def test_a_checkpoint_without_steps_has_weights_and_settings(tmp_path):
    fresh = changed(optimizer__state={})(content_of(DATA / "OneBitAdam-float32.pt"))
    torch.save(fresh, tmp_path / "fresh.pt")
    (comm,) = onebit.loopback(1)
    training = Training(comm, "OneBitAdam")
    assert training.load(tmp_path / "fresh.pt").steps == 0
    assert torch.equal(training.weights()["0.bias"], fresh["module"]["0.bias"])
    assert training.optimizer.param_groups[0]["lr"] == 0.01
    assert training.go(0, 1).optimizer.info.steps == 1
