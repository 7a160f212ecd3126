#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's compressed_allreduce between ranks that share a GPU, beside onebit's, of as many elements.

    cuda_allreduce_benchmark --json allreduce.json
    onebit_nccl_processes --time 262144 4194304 67108864 --json processes.json
    deepspeed_allreduce.py allreduce.json --processes processes.json --json deepspeed.json

The ranks are processes, connected by torch's NCCL over sockets: they share a GPU, so NCCL must treat each as a separate
host. A call is timed on the host, from when all ranks begin it to when the GPU has finished it; medians of rank 0.
onebit's times are read from its figures. In allreduce.json its ranks are threads that share pinned memory, a shorter
way. In processes.json its ranks are connected as DeepSpeed's are: only these figures are directly comparable.
Exit status 77, with the reason: there is no PyTorch with a GPU, no DeepSpeed with the function (0.19.6 was the last),
no CuPy, or there are no figures.
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
# As onebit_nccl_processes sets them.
NCCL_SETTINGS = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0", "NCCL_DEBUG": "WARN"}


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
        from deepspeed.runtime.compression.cupy import CupyBackend
        convert = CupyBackend()  # by DLPack, there and back: not every CuPy can do so with every PyTorch
        bits = cupy.packbits(convert.torch2cupy(torch.ones(8, device=DEVICE).bool()))
        if convert.cupy2torch(bits).tolist() != [255]:
            return "what CuPy packs doesn't come back to PyTorch"
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


def run_rank(rank, ranks, port, figures, processes, file):
    """One process. After each size rank 0 prints and writes all results so far, as it may be killed."""
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(port), "NCCL_HOSTID": f"rank-{rank}"})
    for name, value in NCCL_SETTINGS.items():
        os.environ.setdefault(name, value)
    import torch
    import deepspeed
    import deepspeed.comm as dist
    dist.init_distributed(dist_backend=BACKEND, auto_mpi_discovery=False, verbose=False)
    from deepspeed.runtime.comm.nccl import NcclBackend
    backend = NcclBackend()
    report = {"deepspeed": deepspeed.__version__, "torch": torch.__version__, "ranks": ranks, "sizes": []}
    for size in figures["sizes"]:
        times = measure(torch, dist, backend, size["elements"], size["rounds"])
        if rank == 0:
            forms = {"threads": size["forms"], "processes": forms_of(processes, size["elements"])}
            report["sizes"].append(compare(size["elements"], 1e6 * statistics.median(times), forms))
            if file:
                file.write_text(json.dumps(report, indent=1) + "\n")
    torch.distributed.destroy_process_group()


def forms_of(figures, elements):
    """The forms' figures of a size, if there are any."""
    return next((size["forms"] for size in figures.get("sizes", []) if size["elements"] == elements), {})


def compare(elements, microseconds, forms):
    """Prints a size's rows and returns them for the report."""
    print(f"{elements:<12} {'DeepSpeed compressed_allreduce':<34} {microseconds:12.1f}", flush=True)
    row = {"elements": elements, "microseconds": microseconds, "times_deepspeed": {}}
    for ranks, by_name in forms.items():
        ratios = row["times_deepspeed"][ranks] = {}
        for name, form in by_name.items():
            ratios[name] = microseconds / form["microseconds"]
            call = f"onebit {name}, {ranks}"
            print(f"{elements:<12} {call:<34} {form['microseconds']:12.1f} {ratios[name]:14.2f}", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("allreduce", type=Path, help="what cuda_allreduce_benchmark --json wrote")
    parser.add_argument("--processes", type=Path, help="what onebit_nccl_processes --time --json wrote")
    parser.add_argument("--json", type=Path, help="file for the table as JSON")
    options = parser.parse_args()
    missing = what_is_missing()
    figures = json.loads(options.allreduce.read_text())
    if missing is None and not figures.get("sizes"):
        missing = "the allreduce's figures have no sizes"
    if missing is not None:
        print(f"skipped: {missing}")
        return NO_TORCH

    import deepspeed
    import torch.multiprocessing
    processes = json.loads(options.processes.read_text()) if options.processes else {}
    ranks = figures["ranks"]
    if processes.get("ranks", ranks) != ranks:
        parser.error(f"{options.processes} is of another number of ranks")
    print(f"# DeepSpeed {deepspeed.__version__}, PyTorch {torch.__version__}, {ranks} ranks: processes that share a GPU, "
          "connected by NCCL over sockets")
    print("# onebit's ranks: threads that share pinned memory, a shorter way" +
          ("; and processes, connected as DeepSpeed's are" if processes else ""))
    print(f"{'# elements':<12} {'call':<34} {'median us':>12} {'times as quick':>14}", flush=True)
    torch.multiprocessing.spawn(run_rank, (ranks, free_port(), figures, processes, options.json), nprocs=ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
