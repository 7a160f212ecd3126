#!/usr/bin/python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How long does an allreduce take, compressed and dense, on several networks? Measures with bench/osu_onebit_allreduce.

Shared memory, and hosts that tools/netlab makes on this machine (needs root), with Open MPI and with MPICH. For each,
onebit_tune first measures the forms, as for a user; then the form that is chosen for a size and MPI_Allreduce take
turns. All measurements are kept in RESULTS and not repeated with the same options: this script may be interrupted.
Remove RESULTS when the code or the machine has changed. Finally this script draws IMAGES/allreduce.png and .svg and
prints two tables in Markdown: the largest size, and the times of all sizes divided by MPI_Allreduce's.

Before (Debian 12):
  scripts/packages.sh build openmpi mpich bench && apt-get install iproute2 python3-matplotlib
  for p in release release-mpich; do cmake --preset $p && cmake --build --preset $p --target osu_onebit_allreduce onebit_tune; done
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NETLAB = ROOT / "tools/netlab"
LAB = "benchmarks"
MPIS = {"openmpi": ("Open MPI", "release"), "mpich": ("MPICH", "release-mpich")}
# Name: ranks, rate between hosts (None: shared memory), the largest message.
NETWORKS = {
    "shared memory, 2 ranks": (2, None, "256M"),
    "10 Gbit/s, 2 hosts": (2, "10gbit", "256M"),
    "1 Gbit/s, 2 hosts": (2, "1gbit", "64M"),
    "100 Mbit/s, 2 hosts": (2, "100mbit", "16M"),
    "shared memory, 4 ranks": (4, None, "64M"),
    "10 Gbit/s, 4 hosts": (4, "10gbit", "64M"),
    "1 Gbit/s, 4 hosts": (4, "1gbit", "64M"),
    "100 Mbit/s, 4 hosts": (4, "100mbit", "16M"),
}
# Ranks that spin without enough cores need milliseconds for a few bytes, and minutes for hundreds of calls.
SPINNING = {("shared memory, 4 ranks", "mpich"), ("10 Gbit/s, 4 hosts", "mpich"), ("1 Gbit/s, 4 hosts", "mpich"),
            ("100 Mbit/s, 4 hosts", "mpich")}
SMALLEST_SPINNING = "256K"
COLUMNS = {"bytes": 0, "iterations": 4, "median_us": 6, "dense_median_us": 7, "wire_bytes": 9, "bfloat16_median_us": 11}


def die(message):
    sys.exit(f"benchmarks.py: {message}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "build/benchmarks", help="[%(default)s]")
    parser.add_argument("--images", type=Path, default=ROOT / "docs/images", help="[%(default)s]")
    parser.add_argument("--table", type=Path, help="file for the table [stdout]")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="NETWORK")
    parser.add_argument("--mpis", nargs="+", choices=MPIS, default=list(MPIS))
    parser.add_argument("--smallest", default="8", help="message, of onebit one element per rank at least [%(default)s]")
    parser.add_argument("--largest", help="message [the network's own]")
    parser.add_argument("--iterations", type=int, default=10, help="above 128K [%(default)s]")
    parser.add_argument("--check", choices=("full", "none", "full_low_memory"), default="full", help="what each call makes sure of")
    parser.add_argument("--buffers", choices=("plain", "shared"), default="plain", help="shared: onebit_mem_alloc's")
    parser.add_argument("--plot-only", action="store_true", help="measure nothing, draw what is there")
    options = parser.parse_args()
    options.networks = [n for n in options.networks if bytes_of(options.smallest) <= bytes_of(largest_of(options, n))]
    return options


# ---- measuring ----


SMALL = "128K"  # up to this size the benchmark chooses the iterations


def bytes_of(text):
    units = {"K": 10, "M": 20}
    return int(text[:-1]) << units[text[-1]] if text[-1] in units else int(text)


def on_network(network, mpi, program, arguments):
    ranks, rate, _ = NETWORKS[network]
    program = ROOT / "build" / MPIS[mpi][1] / program
    if not program.is_file():
        die(f"there is no {program}; --help says how to build it")
    if rate:
        return [str(NETLAB), "run", "--name", LAB, "--mpi", mpi, "--", str(program), *arguments]
    flags = ["--oversubscribe"] if mpi == "openmpi" else []
    flags += ["--allow-run-as-root"] if flags and os.geteuid() == 0 else []
    return [f"mpirun.{mpi}", *flags, "-n", str(ranks), str(program), *arguments]


def largest_of(options, network):
    return options.largest or NETWORKS[network][2]


def smallest_of(options, network, mpi):
    spins = (network, mpi) in SPINNING
    return max(options.smallest, SMALLEST_SPINNING, key=bytes_of) if spins else options.smallest


def tune(options, network, mpi):
    table = result_path(options, network, mpi).with_suffix(".tuning.json")
    largest = largest_of(options, network)
    command = on_network(network, mpi, "tools/onebit_tune", ["-o", str(table), "-m", largest, "-s", "20"])
    for _ in lines_of(command, "# To use it"):
        pass
    return table


def commands_for(options, network, mpi):
    """Yields commands, each with its largest size."""
    smallest, largest = smallest_of(options, network, mpi), largest_of(options, network)
    parts = [(f"{smallest}:{largest}", ["-i", str(options.iterations), "-x", "2"], largest)]
    if bytes_of(smallest) < bytes_of(SMALL) < bytes_of(largest):
        above = f"{2 * int(SMALL[:-1])}K:{largest}"
        parts = [(f"{smallest}:{SMALL}", [], SMALL), (above, *parts[0][1:])]
    for sizes, counts, last in parts:
        arguments = ["-f", "--bf16", "-m", sizes, *counts, "--check", options.check, "--buffers", options.buffers]
        yield on_network(network, mpi, "bench/osu_onebit_allreduce", arguments), bytes_of(last)


def lines_of(command, last, tuning_table=None):
    """Yields lines until one that begins with `last`, then lets the program end: MPICH sometimes hangs in MPI_Finalize."""
    environment = {**os.environ, "ONEBIT_TUNING": str(tuning_table)} if tuning_table else None
    found = False
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment) as process:
        watchdog = threading.Timer(900, os.killpg, (process.pid, signal.SIGTERM))
        watchdog.start()
        for line in process.stdout:
            yield line
            found = line.startswith(last)
            if found:
                break
        watchdog.cancel()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
    if not found:
        die(f"failed: {' '.join(command)}")


def rows_of(command, largest, tuning_table):
    for line in lines_of(command, f"{largest} ", tuning_table):
        fields = line.split()
        if fields and not line.startswith("#"):
            yield {name: float(fields[column]) for name, column in COLUMNS.items()}


def result_path(options, network, mpi):
    place = network.replace("/", "_").replace(" ", "_").replace(",", "")
    sizes = f"{smallest_of(options, network, mpi)}-{largest_of(options, network)}"
    return options.results / f"{place}-{mpi}-{options.check}-{options.buffers}-{sizes}-{options.iterations}.json"


def measure(options, network):
    ranks, rate, _ = NETWORKS[network]
    missing = [mpi for mpi in options.mpis if not result_path(options, network, mpi).exists()]
    if not missing:
        return
    if rate:
        subprocess.run([str(NETLAB), "down", "--name", LAB], stderr=subprocess.DEVNULL, check=False)
        subprocess.run([str(NETLAB), "up", "--name", LAB, "--hosts", str(ranks), "--rate", rate], check=True)
    try:
        for mpi in missing:
            print(f"{network}, {MPIS[mpi][0]}", flush=True)
            tuning_table = tune(options, network, mpi)
            rows = [row for command, last in commands_for(options, network, mpi)
                    for row in rows_of(command, last, tuning_table)]
            result_path(options, network, mpi).write_text(json.dumps(rows, indent=1))
    finally:
        if rate:
            subprocess.run([str(NETLAB), "down", "--name", LAB], check=True)


# ---- reporting ----


def read(options):
    results = {}
    for network in options.networks:
        for mpi in options.mpis:
            path = result_path(options, network, mpi)
            if path.exists():
                results[network, mpi] = json.loads(path.read_text())
    return results or die(f"nothing in {options.results}")


def floor_ms(network, row):
    """The time that the wire needs for the compressed bytes; None for shared memory."""
    rate = NETWORKS[network][1]
    bits = {"10gbit": 1e10, "1gbit": 1e9, "100mbit": 1e8, None: 0}[rate]
    return row["wire_bytes"] * 8 / bits * 1e3 if bits else None


def table(options, results):
    lines = ["| network | MPI | MiB | onebit, ms | wire's floor, ms | MPI_Allreduce, ms | of bfloat16, ms | times faster than "
             "MPI_Allreduce | than the better MPI | than bfloat16 |", "| --- " * 10 + "|"]
    for network in options.networks:
        dense = [results[network, mpi][-1]["dense_median_us"] for mpi in options.mpis if (network, mpi) in results]
        for mpi in options.mpis:
            if (network, mpi) not in results:
                continue
            row = results[network, mpi][-1]
            floor = floor_ms(network, row)
            lines.append(f"| {network} | {MPIS[mpi][0]} | {row['bytes'] / 2**20:.0f} | {row['median_us'] / 1e3:.1f} | "
                         f"{'-' if floor is None else f'{floor:.1f}'} | {row['dense_median_us'] / 1e3:.1f} | "
                         f"{row['bfloat16_median_us'] / 1e3:.1f} | {row['dense_median_us'] / row['median_us']:.1f} | "
                         f"{min(dense) / row['median_us']:.1f} | {row['bfloat16_median_us'] / row['median_us']:.1f} |")
    return "\n".join(lines) + "\n"


def size_name(size):
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def ratio(row):
    """The time divided by MPI_Allreduce's; where the ratio says little, the microseconds too."""
    over = row["median_us"] / row["dense_median_us"]
    more = row["median_us"] - row["dense_median_us"]
    return f"{over:.2f} (+{more:.1f} us)" if over > 1.05 else f"{over:.2f}"


def ratio_table(results):
    lines = ["| size | " + " | ".join(f"{network}, {MPIS[mpi][0]}" for network, mpi in results) + " |",
             "| --- |" + " --- |" * len(results)]
    for size in sorted({int(row["bytes"]) for rows in results.values() for row in rows}):
        cells = [next((ratio(row) for row in rows if row["bytes"] == size), "") for rows in results.values()]
        lines.append(f"| {size_name(size)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(options, results):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    networks = [n for n in options.networks if any((n, mpi) in results for mpi in options.mpis)]
    columns = min(4, len(networks))
    rows = -(-len(networks) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.8 * columns, 3.4 * rows), squeeze=False, sharey=True)
    for axis in axes.flat[len(networks):]:
        axis.set_visible(False)
    styles = {"openmpi": "-", "mpich": "--"}
    for axis, network in zip(axes.flat, networks):
        for mpi in options.mpis:
            if (network, mpi) not in results:
                continue
            measured = results[network, mpi]
            sizes = [row["bytes"] for row in measured]
            for column, colour, what in (("dense_median_us", "#222222", "MPI_Allreduce"),
                                         ("bfloat16_median_us", "#bb7733", "MPI_Allreduce, bfloat16"),
                                         ("median_us", "#1f6fb4", "onebit")):
                axis.plot(sizes, [row[column] for row in measured], styles[mpi], color=colour,
                          label=f"{what}, {MPIS[mpi][0]}")
        axis.set(xscale="log", yscale="log", title=network)
        ticks = [8 << (4 * i) for i in range(7) if 8 << (4 * i) <= sizes[-1]]
        axis.set_xticks(ticks, [size_name(tick) for tick in ticks])
        axis.minorticks_off()
        axis.tick_params(labelsize=8)
        axis.grid(True, which="major", alpha=0.3)
    for row in axes:
        row[0].set_ylabel("microseconds")
    axes.flat[0].legend(fontsize=8)
    figure.tight_layout()
    options.images.mkdir(parents=True, exist_ok=True)
    for suffix in ("png", "svg"):
        figure.savefig(options.images / f"allreduce.{suffix}", dpi=110)


def main():
    options = parse_arguments()
    options.results.mkdir(parents=True, exist_ok=True)
    if not options.plot_only:
        for network in options.networks:
            measure(options, network)
    results = read(options)
    text = table(options, results) + "\n" + ratio_table(results)
    if options.table:
        options.table.write_text(text)
    else:
        print(text, end="")
    draw(options, results)


if __name__ == "__main__":
    main()
