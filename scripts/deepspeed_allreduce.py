#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's compressed_allreduce between ranks that share a GPU, beside onebit's there, of as many elements.

    cuda_allreduce_benchmark --json allreduce.json && deepspeed_allreduce.py allreduce.json --json deepspeed.json

The ranks are processes, connected by torch's NCCL, which takes them for hosts of their own. A call is timed on the host, from
when all ranks begin it to when the GPU has come to its end; medians of rank 0. What onebit took is read from its figures.
Exit status 77, with the reason: there is no PyTorch with a GPU, no DeepSpeed that has the function (0.19.6 was the last), no CuPy.
"""

import argparse
import importlib.util
import json
import os
import socket
import statistics
import sys
import time
from pathlib import Path

from torch_fused_adam import NO_TORCH, WARM_UP, torch_with_gpu

DEVICE = "cuda"
BACKEND = "nccl"


def what_is_missing():
    torch, reason = torch_with_gpu()
    if torch is None:
        return reason
    for package in ("deepspeed", "cupy"):
        if importlib.util.find_spec(package) is None:
            return f"there is no {package}"
    try:
        import cupy
        from deepspeed.runtime.comm.nccl import NcclBackend  # noqa: F401
        cupy.packbits(cupy.ones(8, dtype=bool))
    except Exception as error:  # an installation may be broken in many ways
        return f"DeepSpeed's compressed_allreduce can't be used: {error}"
    return None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def measure(torch, dist, backend, elements, rounds):
    """Seconds of each call."""
    chunk = 8 * backend.size  # signs are packed into bytes, the same number for each rank
    padded = (elements + chunk - 1) // chunk * chunk
    values, buffer = torch.randn(elements, device=DEVICE), torch.empty(elements, device=DEVICE)
    worker_error, server_error = torch.zeros(padded, device=DEVICE), torch.zeros(padded // backend.size, device=DEVICE)
    times = []
    for turn in range(WARM_UP + rounds):
        buffer.copy_(values)  # it works in place
        dist.barrier()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        backend.compressed_allreduce(buffer, worker_error, server_error, 0)
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        if turn >= WARM_UP:
            times.append(time.perf_counter() - begin)
    return times


def run_rank(rank, ranks, port, sizes, results):
    """One process: the times of all sizes; rank 0 writes them to the file `results`."""
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(port), "NCCL_HOSTID": f"rank-{rank}", "NCCL_SOCKET_IFNAME": "lo"})
    import torch
    import deepspeed.comm as dist
    dist.init_distributed(dist_backend=BACKEND, auto_mpi_discovery=False, verbose=False)
    from deepspeed.runtime.comm.nccl import NcclBackend
    backend = NcclBackend()
    medians = [1e6 * statistics.median(measure(torch, dist, backend, size["elements"], size["rounds"])) for size in sizes]
    if rank == 0:
        Path(results).write_text(json.dumps(medians))
    torch.distributed.destroy_process_group()


def compare(size, microseconds):
    """A size's row, printed and as it goes into the report."""
    elements = size["elements"]
    print(f"{elements:<12} {'DeepSpeed compressed_allreduce':<34} {microseconds:12.1f}", flush=True)
    row = {"elements": elements, "microseconds": microseconds, "times_deepspeed": {}}
    for name, form in size["forms"].items():
        row["times_deepspeed"][name] = microseconds / form["microseconds"]
        print(f"{elements:<12} {'onebit ' + name:<34} {form['microseconds']:12.1f} {row['times_deepspeed'][name]:14.2f}")
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("allreduce", type=Path, help="what cuda_allreduce_benchmark --json wrote")
    parser.add_argument("--json", type=Path, help="file for the table as JSON")
    options = parser.parse_args()
    missing = what_is_missing()
    if missing is not None:
        print(f"skipped: {missing}")
        return NO_TORCH

    import deepspeed
    import torch.multiprocessing
    figures = json.loads(options.allreduce.read_text())
    ranks, sizes = figures["ranks"], figures["sizes"]
    results = options.allreduce.with_suffix(".deepspeed")
    torch.multiprocessing.spawn(run_rank, (ranks, free_port(), sizes, results), nprocs=ranks)
    medians = json.loads(results.read_text())
    results.unlink()
    print(f"# DeepSpeed {deepspeed.__version__}, PyTorch {torch.__version__}, {ranks} ranks")
    print(f"{'# elements':<12} {'call':<34} {'median us':>12} {'times as quick':>14}")
    report = {"deepspeed": deepspeed.__version__, "torch": torch.__version__, "ranks": ranks,
              "sizes": [compare(size, microseconds) for size, microseconds in zip(sizes, medians)]}
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
