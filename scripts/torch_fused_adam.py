#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compares PyTorch's fused Adam on a GPU with onebit's steps, on tensors of the same sizes.

    cuda_passes_benchmark --json passes.json && torch_fused_adam.py passes.json --json torch.json

torch.optim.Adam(fused=True) on several tensors and on one, timed by events, in turn with a copy from device to device;
medians. The GPU is kept busy until Python has launched the whole step; otherwise the GPU would wait for Python. The
time of a step without this is reported, too. onebit's times are read from the passes' figures: all launches of a step,
without its network traffic.
Exit status 77, with the reason: there is no PyTorch, or it has no GPU, or there are no figures.
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
MODELS = ("several tensors", "one tensor")  # how the names of onebit's steps end
BUSY_CYCLES = 100_000_000  # of the GPU: 50 ms at 2 GHz


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


def microseconds(torch, launch, busy):
    """The GPU's time, and whether all work was launched before the GPU began it."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if busy:
        torch.cuda._sleep(BUSY_CYCLES)
    begin.record()
    launch()
    end.record()
    launched = busy and not begin.query()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end), launched


def measure(torch, elements, sizes, rounds):
    """Medians of the step, of the copy, and of the step with its launches; whether the first two are without them."""
    optimizer = torch.optim.Adam(make_parameters(torch, elements, sizes), lr=1e-3, fused=True)
    source, target = (torch.zeros(elements, device="cuda") for _ in range(2))
    busy = hasattr(torch.cuda, "_sleep")
    launches = {"step": (optimizer.step, busy), "copy": (lambda: target.copy_(source), busy),
                "with_launches": (optimizer.step, False)}
    times = {name: [] for name in launches}
    all_launched = busy
    for turn in range(WARM_UP + rounds):
        for name, (launch, keep_busy) in launches.items():
            time, launched = microseconds(torch, launch, keep_busy)
            if turn >= WARM_UP:
                times[name].append(time)
                all_launched = all_launched and (launched or not keep_busy)
    return {name: statistics.median(each) for name, each in times.items()}, all_launched


def compare_model(torch, size, model, sizes, row):
    """Prints the rows of one way to cut all elements into tensors, and adds them to the size's row."""
    elements = size["elements"]
    times, kept_busy = measure(torch, elements, sizes, size["rounds"])
    of_copy = ADAM_BYTES / times["step"] / (COPY_BYTES / times["copy"])
    print(f"{elements:<12} {'torch fused Adam, ' + model:<34} {times['step']:12.1f} {times['with_launches']:14.1f} "
          f"{'':>9} {'':>14} {of_copy:8.3f}{'' if kept_busy else '  # with launches'}")
    row["torch"][model] = {"microseconds": times["step"], "microseconds_with_launches": times["with_launches"],
                           "kept_busy": kept_busy, "of_copy": of_copy}
    for name, case in size["cases"].items():
        if name.endswith(f", {model}"):
            time = case["microseconds"]
            ratio, other = time / times["step"], time / times["with_launches"]
            print(f"{elements:<12} {name:<34} {time:12.1f} {'':>14} {ratio:9.3f} {other:14.3f}")
            row["onebit_over_torch"][name] = ratio
            row["onebit_over_torch_with_launches"][name] = other


def compare(torch, size, sizes):
    """Prints a size's rows and returns them for the report."""
    row = {"elements": size["elements"], "torch": {}, "onebit_over_torch": {}, "onebit_over_torch_with_launches": {}}
    for model in MODELS:
        compare_model(torch, size, model, sizes if model == MODELS[0] else [size["elements"]], row)
        torch.cuda.empty_cache()  # the next one's memory is of other sizes
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
    if not passes.get("sizes"):
        print("skipped: the passes' figures have no sizes")
        return NO_TORCH
    gpu = torch.cuda.get_device_name()
    print(f"# PyTorch {torch.__version__}, {gpu}")
    print(f"{'# elements':<12} {'step':<34} {'median us':>12} {'with launches':>14} {'of torch':>9} {'with launches':>14} "
          f"{'of copy':>8}")
    report = {"torch": torch.__version__, "gpu": gpu, "sizes": []}
    for size in passes["sizes"]:
        report["sizes"].append(compare(torch, size, passes["tensor_sizes"]))
        if options.json:  # after each size, as the script may be killed
            options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
