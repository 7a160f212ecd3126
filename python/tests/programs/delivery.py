# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What programs on a hook of DistributedDataParallel have in common."""

import torch


def gradients_of(net):
    return torch.cat([p.grad.flatten() for p in net.parameters()]).cpu()


def require_delivered(net, backward, exact, steps, **tolerance):
    """The mean of many compressed averages of one gradient is its exact average: errors are fed back.

    The hook's first two steps average exactly. `backward()` is a backward pass of net, the same in each of `steps` more.
    """
    delivered = torch.zeros_like(exact)
    for step in range(2 + steps):
        net.zero_grad()
        backward()
        if step < 2:
            torch.testing.assert_close(gradients_of(net), exact, **tolerance)
        else:
            delivered += gradients_of(net) / steps
    assert (delivered - exact).norm() < 0.1 * exact.norm()
