#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's fused Adam on a GPU beside onebit's steps there, of tensors of the same sizes.

    cuda_passes_benchmark --json passes.json && torch_fused_adam.py passes.json --json torch.json

torch.optim.Adam(fused=True), timed by events, in turn with a copy from device to device; medians. What onebit took is
read from the passes' figures: the launches of a step without what goes over the network, of several tensors.
Exit status 77, with the reason: there is no PyTorch, or it has no GPU.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

NO_TORCH = 77
WARM_UP = 3
COPY_BYTES = 8   # per element
ADAM_BYTES = 28  # likewise: parameters, m and v read and written, gradients read
ONEBIT_STEPS = ("Adam, several tensors", "1-bit Adam, several tensors")


def torch_with_gpu():
    """The module, or the reason why there is none."""
    try:
        import torch
    except Exception as error:  # an installation may be broken in many ways
        return None, f"PyTorch can't be imported: {error}"
    if not torch.cuda.is_available():
        return None, f"PyTorch {torch.__version__} finds no GPU"
    return torch, None


def make_parameters(torch, elements, sizes):
    parameters = []
    while elements > 0:
        size = min(sizes[len(parameters) % len(sizes)], elements)
        parameters.append(torch.nn.Parameter(torch.zeros(size, device="cuda")))
        parameters[-1].grad = torch.randn(size, device="cuda")
        elements -= size
    return parameters


def microseconds(torch, launch):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    launch()
    end.record()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end)


def measure(torch, elements, sizes, rounds):
    """Medians of the step and of the copy."""
    optimizer = torch.optim.Adam(make_parameters(torch, elements, sizes), lr=1e-3, fused=True)
    source, target = (torch.zeros(elements, device="cuda") for _ in range(2))
    launches = {"step": optimizer.step, "copy": lambda: target.copy_(source)}
    times = {name: [] for name in launches}
    for turn in range(WARM_UP + rounds):
        for name, launch in launches.items():
            time = microseconds(torch, launch)
            if turn >= WARM_UP:
                times[name].append(time)
    return {name: statistics.median(each) for name, each in times.items()}


def compare(torch, size, sizes):
    """A size's rows, printed and as they go into the report."""
    elements = size["elements"]
    torch_times = measure(torch, elements, sizes, size["rounds"])
    step = torch_times["step"]
    of_copy = ADAM_BYTES / step / (COPY_BYTES / torch_times["copy"])
    print(f"{elements:<12} {'torch.optim.Adam(fused=True)':<34} {step:12.1f} {'':>12} {of_copy:10.3f}", flush=True)
    row = {"elements": elements, "microseconds": step, "of_copy": of_copy, "onebit_over_torch": {}}
    for name in ONEBIT_STEPS:
        time = size["cases"][name]["microseconds"]
        print(f"{elements:<12} {name:<34} {time:12.1f} {time / step:12.3f}", flush=True)
        row["onebit_over_torch"][name] = time / step
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("passes", type=Path, help="what cuda_passes_benchmark --json wrote")
    parser.add_argument("--json", type=Path, help="file for the table as JSON")
    options = parser.parse_args()
    torch, reason = torch_with_gpu()
    if torch is None:
        print(f"skipped: {reason}")
        return NO_TORCH

    passes = json.loads(options.passes.read_text())
    gpu = torch.cuda.get_device_name()
    print(f"# PyTorch {torch.__version__}, {gpu}")
    print(f"{'# elements':<12} {'step':<34} {'median us':>12} {'of torch':>12} {'of copy':>10}")
    report = {"torch": torch.__version__, "gpu": gpu,
              "sizes": [compare(torch, size, passes["tensor_sizes"]) for size in passes["sizes"]]}
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
