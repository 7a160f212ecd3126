#!/usr/bin/python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How long does an allreduce take on large clusters? Runs the library's collectives and MPI code under SimGrid's SMPI.

The network, MPI's messages and the waiting of ranks are simulated; the library's code that sends messages is the real
code. Computation takes the time that RATES gives, and accesses no values, so that 256 ranks with 340 million parameters
each fit into one machine. Results are kept in RESULTS and not simulated again. Prints tables in Markdown: few values,
averaged exactly (some minutes); simulated beside measured (tools/netlab, with --measure, as root); the large clusters;
and racks whose links to each other are slower than their hosts' links.

Before (Debian 12): scripts/packages.sh build openmpi bench simulation
                    cmake --preset release && cmake --build --preset release --target simulation osu_onebit_allreduce
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NETLAB = ROOT / "tools/netlab"
LAB = "simulate"
PROGRAM = ROOT / "build/release/simulation/simulated_allreduce"
OSU = ROOT / "build/release/bench/osu_onebit_allreduce"

# Nanoseconds of one core per element; bench/kernel_benchmark --ratio, avx512, on the EPYC of docs/BENCHMARKS.md ("add": axpy).
RATES = {"check": 0.18, "encode": 0.36, "average": 0.11, "average_message": 0.04, "decode": 0.16, "add": 0.30}
# And inside a node, for each element of a shard and each neighbour: "copy", and what mean_encode takes longer than encode.
NODE_RATE = 0.48
# One core there fetches 34 GB/s, both together 50: how much longer each takes when both are at it, as in a lab.
TWO_AT_ONCE = 1.36
CPU_SPEED = "1Gf"  # any: the rates say how long things take
# Name: bytes per second of a link, its latency in seconds (a message crosses two), seconds of a core per message.
NETWORKS = {
    "100 Mbit/s": (12.5e6, 10e-6, 2e-6),
    "1 Gbit/s": (125e6, 10e-6, 2e-6),
    "10 Gbit/s": (1.25e9, 10e-6, 2e-6),
    "100 Gbit/s": (12.5e9, 1e-6, 0.5e-6),
}
RACK = 16  # hosts
PAYLOAD = 0.95  # of a link's bytes: the rest are headers
BERT_LARGE = 340_000_000
SMALL = 1_000_000


def die(message):
    sys.exit(f"simulate.py: {message}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "build/simulation", help="[%(default)s]")
    parser.add_argument("--program", type=Path, default=PROGRAM, help="[%(default)s]")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES), help="[all]")
    parser.add_argument("--table", type=Path, help="file for the tables [stdout]")
    parser.add_argument("--measure", action="store_true", help="first measure, by netlab, what there is to compare with")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one simulation [%(default)s]")
    parser.add_argument("--self-test", action="store_true", help="simulate a little, compare with what must come out, no tables")
    return parser.parse_args()


# ---- simulating ----


def write_cluster(folder, network, hosts, ranks_per_host, uplinks):
    """One switch; or a switch per rack with `uplinks` links to the switch between racks, each like a host's link."""
    bandwidth, latency, _ = NETWORKS[network]
    racks = f' topology="FAT_TREE" topo_parameters="2;{RACK},{hosts // RACK};1,1;1,{uplinks}"' if uplinks else ""
    platform = folder / "platform.xml"
    platform.write_text(
        "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n<platform version=\"4.1\">\n"
        f"  <cluster id=\"cluster\" prefix=\"host-\" suffix=\"\" radical=\"0-{hosts - 1}\" speed=\"{CPU_SPEED}\" "
        f"core=\"{ranks_per_host}\" bw=\"{bandwidth}Bps\" lat=\"{latency}s\" loopback_bw=\"10GBps\" loopback_lat=\"0.5us\"{racks}/>\n"
        "</platform>\n")
    hostfile = folder / "hosts"
    hostfile.write_text("".join(f"host-{h}\n" * ranks_per_host for h in range(hosts)))
    return platform, hostfile


def simulate(options, network, hosts, algorithm, count, ranks_per_host=1, check=False, slower=1.0, calls=1, uplinks=0, poll=None):
    """Microseconds of a call; None if the simulation took too long."""
    # The simulated time between two polls of a waiting rank; every message costs one poll.
    large = count > 100 * SMALL
    poll = poll or (1e-5 if large else 1e-7)
    rates = {name: rate * slower for name, rate in RATES.items()}
    arguments = [algorithm, str(count), str(calls), str(rates["check"] if check else 0), str(rates["encode"]),
                 str(NODE_RATE * slower * (ranks_per_host - 1)), str(rates["average"]), str(rates["average_message"]), str(rates["decode"]),
                 str(rates["add"]), str(poll * 1e9)]
    configuration = {
        "smpi/simulate-computation": "no", "smpi/host-speed": CPU_SPEED, "smpi/cpu-threshold": "0",
        "smpi/test": poll, "smpi/iprobe": poll, "smpi/grow-injected-times": "no", "smpi/coll-selector": "ompi",
        "smpi/bw-factor": f"0:{PAYLOAD}", "smpi/lat-factor": "0:1",
        "smpi/os": f"0:{NETWORKS[network][2]}:0", "smpi/ois": f"0:{NETWORKS[network][2]}:0", # of MPI_Start, of MPI_Isend
        "smpi/shared-malloc-blocksize": 64 << 20,
    }
    with tempfile.TemporaryDirectory() as folder:
        platform, hostfile = write_cluster(Path(folder), network, hosts, ranks_per_host, uplinks)
        command = ["env", "ONEBIT_TIMEOUT=0", f"ONEBIT_PIECE={1 << 20 if large else 1 << 18}",
                   "smpirun", "-platform", str(platform), "-hostfile", str(hostfile), "-np", str(hosts * ranks_per_host),
                   "--log=root.thres:error", *(f"--cfg={name}:{value}" for name, value in configuration.items()),
                   str(options.program), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout, check=False)
        except subprocess.TimeoutExpired:
            subprocess.run(["pkill", "-f", folder], check=False)
            return None
    if done.returncode != 0:
        die(f"failed: {' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])["microseconds"]


class Results:
    """Earlier results, each by its name."""

    def __init__(self, path):
        self.path = path
        self.values = json.loads(path.read_text()) if path.exists() else {}

    def get(self, name, find):
        if name not in self.values:
            print(name, end=": ", flush=True, file=sys.stderr)
            value = find()
            print(value, file=sys.stderr)
            if value is None:
                return None
            self.values[name] = value
            self.path.write_text(json.dumps(self.values, indent=1))
        return self.values[name]


# ---- beside measurements ----

COMPARED_COUNT = 16 << 20
# Network, hosts, ranks on each, forms.
COMPARED = [(network, hosts, ranks, algorithms) for network in ("100 Mbit/s", "1 Gbit/s") for hosts, ranks, algorithms in (
    (2, 1, ("flat", "pipelined")), (4, 1, ("flat", "pipelined")), (2, 2, ("pipelined", "two_level")))]


def measure(algorithm):
    """Microseconds of the form and of MPI_Allreduce, measured by the benchmark on the lab's hosts."""
    command = [str(NETLAB), "run", "--name", LAB, "--mpi", "openmpi", "--", str(OSU), "-f", "-m", "64M:64M", "-i", "3", "-x", "1",
               "--check", "none", "--algorithm", algorithm]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    rows = [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")]
    if not rows:
        die(f"failed: {' '.join(command)}\n{done.stderr}")
    return {algorithm: float(rows[0][6]), "mpi": float(rows[0][7])}


def lab_name(network, hosts, ranks, algorithm):
    return f"{network} {hosts}x{ranks} {algorithm}"


def measure_all(results):
    for network, hosts, ranks, algorithms in COMPARED:
        if all("measured " + lab_name(network, hosts, ranks, algorithm) in results.values for algorithm in algorithms):
            continue
        rate = network.replace(" Mbit/s", "mbit").replace(" Gbit/s", "gbit")
        subprocess.run([str(NETLAB), "up", "--name", LAB, "--hosts", str(hosts), "--rate", rate, "--ranks-per-host", str(ranks)],
                       check=True, stdout=sys.stderr)
        try:
            for algorithm in algorithms:
                results.get("measured " + lab_name(network, hosts, ranks, algorithm), lambda: measure(algorithm))
        finally:
            subprocess.run([str(NETLAB), "down", "--name", LAB], check=True, stdout=sys.stderr)


def comparison(options, results):
    lines = ["| network | hosts | ranks on each | form | measured, ms | simulated, ms | off by |", "| --- " * 7 + "|"]
    for network, hosts, ranks, algorithms in COMPARED:
        beside = results.values.get("measured " + lab_name(network, hosts, ranks, algorithms[0]))
        if beside is None:
            continue  # --measure was not asked for
        for algorithm in ("mpi", *algorithms):
            measured = (beside if algorithm == "mpi"
                        else results.values["measured " + lab_name(network, hosts, ranks, algorithm)])[algorithm]
            # All ranks of a lab are on one machine, of two cores.
            simulated = results.get("compared " + lab_name(network, hosts, ranks, algorithm), lambda: simulate(
                options, network, hosts, algorithm, COMPARED_COUNT, ranks, slower=TWO_AT_ONCE * hosts * ranks / 2))
            if simulated is None:
                die(f"{network}, {hosts} hosts, {algorithm}: not done in {options.timeout} seconds")
            lines.append(f"| {network} | {hosts} | {ranks} | {name_of(algorithm)} | {measured / 1e3:.1f} | {simulated / 1e3:.1f} | "
                         f"{100 * (simulated / measured - 1):+.0f} % |")
    return "\n".join(lines) + "\n"


# ---- large clusters ----


def name_of(algorithm):
    return "MPI_Allreduce" if algorithm == "mpi" else algorithm


def clusters():
    """Network, hosts, ranks per host, elements, forms; the slowest simulations come last."""
    networks = ("10 Gbit/s", "100 Gbit/s")
    for network in networks:
        for hosts in (16, 64):
            yield network, hosts, 1, BERT_LARGE, ("mpi", "flat", "pipelined")
        for hosts, ranks in ((4, 4), (8, 8)):
            yield network, hosts, ranks, BERT_LARGE, ("mpi", "flat", "two_level")
    for network in networks:  # chunks are no larger than a piece: pipelined is flat
        yield network, 256, 1, BERT_LARGE, ("mpi", "flat")
        yield network, 32, 8, BERT_LARGE, ("mpi", "two_level")
    for hosts in (16, 64):
        for network in networks:
            yield network, hosts, 1, SMALL, ("mpi", "flat", "bruck")
    for network in networks:  # with more elements every message's poll would take hours
        yield network, 256, 1, SMALL // 10, ("mpi", "flat", "bruck")


def large_clusters(options, results):
    lines = ["| network | hosts | ranks on each | parameters | MPI_Allreduce, ms | flat | pipelined | bruck | two_level | the best, "
             "times faster |", "| --- " * 10 + "|"]
    for network, hosts, ranks, count, algorithms in clusters():
        times = {}
        for algorithm in algorithms:
            times[algorithm] = results.get(f"large {network} {hosts} {ranks} {count} {algorithm}", lambda: simulate(
                options, network, hosts, algorithm, count, ranks_per_host=ranks, check=algorithm != "mpi"))
        cells = [f"{times[a] / 1e3:.4g}" if times.get(a) else ("" if a not in times else "?")
                 for a in ("mpi", "flat", "pipelined", "bruck", "two_level")]
        ours = [time for algorithm, time in times.items() if algorithm != "mpi" and time]
        gain = f"{times['mpi'] / min(ours):.2g}" if ours and times["mpi"] else "?"
        lines.append(f"| {network} | {hosts} | {ranks} | {count / 1e6:g} M | " + " | ".join(cells) + f" | {gain} |")
    return "\n".join(lines) + "\n"


# ---- racks ----

# Network, hosts, each rack's links to the others: as many as hosts are no bottleneck.
RACKS = [("10 Gbit/s", 32, uplinks) for uplinks in (16, 4, 2, 1)] + [("1 Gbit/s", 64, uplinks) for uplinks in (16, 4)]


def racks(options, results):
    lines = ["| network | hosts | uplinks of a rack | MPI_Allreduce, ms | pipelined | ring | pipelined / ring |", "| --- " * 7 + "|"]
    for network, hosts, uplinks in RACKS:
        times = {algorithm: results.get(f"racks {network} {hosts} {uplinks} {algorithm}", lambda: simulate(
            options, network, hosts, algorithm, COMPARED_COUNT, check=algorithm != "mpi", uplinks=uplinks))
            for algorithm in ("mpi", "pipelined", "ring")}
        cells = [f"{time / 1e3:.4g}" if time else "?" for time in times.values()]
        gain = f"{times['pipelined'] / times['ring']:.2f}" if times["pipelined"] and times["ring"] else "?"
        lines.append(f"| {network} | {hosts} | {uplinks} | " + " | ".join(cells) + f" | {gain} |")
    return "\n".join(lines) + "\n"


# ---- few values, averaged exactly ----

FEW_HOSTS = (4, 6, 16, 64)
FEW_COUNTS = (64, 1024, 2048, 4096, 8192, 16384, 32768, 65536)


def few_values(options, results):
    """The ratio of a checked call to MPI_Allreduce; microseconds of both."""
    lines = ["| network | hosts | " + " | ".join(f"{count * 4 / 1024:g} KiB" for count in FEW_COUNTS) + " |",
             "| --- " * (2 + len(FEW_COUNTS)) + "|"]
    for network in ("10 Gbit/s", "100 Gbit/s"):
        for hosts in FEW_HOSTS:
            cells = []
            for count in FEW_COUNTS:
                dense, mpi = (results.get(f"few {network} {hosts} {count} {algorithm}", lambda: simulate(
                    options, network, hosts, algorithm, count, check=algorithm != "mpi", calls=5)) for algorithm in ("dense", "mpi"))
                cells.append(f"{dense / mpi:.2f} ({dense:.0f}/{mpi:.0f})" if dense and mpi else "?")
            lines.append(f"| {network} | {hosts} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


TABLES = {"few": few_values, "comparison": comparison, "clusters": large_clusters, "racks": racks}


# ---- a test of the simulation itself ----


def self_test(options):
    """What must come out whatever the machine: the wire's floor, Bruck's fewer messages, two levels' fewer bytes, a
    ring's between racks, and few values that are checked as quick as by MPI_Allreduce, which checks nothing."""

    def expect(what, holds):
        print(f"{'ok' if holds else 'FAILED'}: {what}")
        return holds

    count = 4 << 20
    bits = count / 8 * 2 / 2  # two exchanges of one half
    floor = bits / (NETWORKS["1 Gbit/s"][0] * PAYLOAD) * 1e6
    pipelined = simulate(options, "1 Gbit/s", 2, "pipelined", count)
    few = {algorithm: simulate(options, "10 Gbit/s", 32, algorithm, 100_000) for algorithm in ("flat", "bruck")}
    flat = simulate(options, "100 Mbit/s", 2, "flat", count, ranks_per_host=2, poll=1e-6)
    two_level = simulate(options, "100 Mbit/s", 2, "two_level", count, ranks_per_host=2, poll=1e-6)
    behind_one_link = {algorithm: simulate(options, "1 Gbit/s", 2 * RACK, algorithm, count // 8, uplinks=1, poll=1e-6)
                       for algorithm in ("pipelined", "ring", f"levels:{RACK}")}
    nodes_in_racks = {algorithm: simulate(options, "1 Gbit/s", 2 * RACK, algorithm, count // 64, ranks_per_host=2, uplinks=1, poll=1e-6)
                      for algorithm in ("two_level", f"levels:2,{2 * RACK}")}
    exact = {algorithm: simulate(options, "10 Gbit/s", 16, algorithm, 2048, check=algorithm != "mpi", calls=5)
             for algorithm in ("dense", "mpi")}
    good = [
        expect(f"pipelined, 2 hosts: {pipelined:.0f} us, the wire's floor {floor:.0f} us", floor < pipelined < 2 * floor),
        expect(f"100000 parameters, 32 ranks: bruck {few['bruck']:.0f} us, flat {few['flat']:.0f} us", few["bruck"] < few["flat"]),
        expect(f"2 hosts with 2 ranks each: two_level {two_level:.0f} us, flat {flat:.0f} us", two_level < 0.7 * flat),
        expect("2 racks, one link between: ring {ring:.0f} us, pipelined {pipelined:.0f} us".format(**behind_one_link),
               behind_one_link["ring"] < 0.75 * behind_one_link["pipelined"]),
        expect(f"with a group for each rack: {behind_one_link[f'levels:{RACK}']:.0f} us",
               behind_one_link[f"levels:{RACK}"] < 0.75 * behind_one_link["pipelined"]),
        expect("the same with 2 ranks on each host: two_level {:.0f} us, host, rack and all {:.0f} us".format(*nodes_in_racks.values()),
               nodes_in_racks[f"levels:2,{2 * RACK}"] < 0.75 * nodes_in_racks["two_level"]),
        expect("2048 values, 16 ranks: checked {dense:.0f} us, MPI_Allreduce {mpi:.0f} us".format(**exact), exact["dense"] < exact["mpi"]),
    ]
    sys.exit(0 if all(good) else 1)


def main():
    options = parse_arguments()
    if not options.program.is_file():
        die(f"there is no {options.program}; --help says how to build it")
    if options.self_test:
        self_test(options)
    options.results.mkdir(parents=True, exist_ok=True)
    results = Results(options.results / "results.json")
    if options.measure:
        measure_all(results)
    text = "\n".join(TABLES[name](options, results) for name in options.tables)
    if options.table:
        options.table.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
