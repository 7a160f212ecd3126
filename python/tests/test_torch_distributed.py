# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What needs processes: programs under torchrun."""

import pytest
from ranks import torchrun

pytest.importorskip("torch")


@pytest.mark.parametrize("size", [2, 3])
def test_communicators_and_optimizers(size):
    assert torchrun(size, "distributed.py").count("ok") == size


@pytest.mark.parametrize("size", [2])
def test_distributed_data_parallel(size):
    assert torchrun(size, "ddp.py").count("ok") == size
