#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How does training converge with each codec? Trains a small transformer of bytes with every one, tabulates and draws.

  torchrun --nproc_per_node 2 bench/python/codec_convergence.py --text build/bible.txt
  python3 bench/python/codec_convergence.py --plot-only --images docs/images

DistributedDataParallel and AdamW throughout. dense: DDP's own averages; CODEC: onebit's ddp_hook with codec=CODEC;
CODEC_plain: that with equalize=False; CODEC_cold: that with warmup_steps=0, which leaves nothing to equalize by; CODEC_sites:
that between pairs of ranks, which average by int8 (levels).
All runs of a seed begin with the same weights and see the same batches. The ranks are started once for all of them.
What RESULTS has already is not run again.

The text: bible -f 'Gen1:1-Rev22:21' | sed 's/^[^ ]* //' >build/bible.txt   # Debian's bible-kjv
Drawing needs matplotlib, training doesn't.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

COLOURS = {"sign": "#1f6fb4", "int4": "#e08a1e", "fp4": "#2a9d57", "int8": "#c0392b", "bfloat16": "#8e5aa8",
           "topk": "#7f8c8d", "ternary": "#8a6d3b", "int2": "#d14d8b", "float16": "#3c4a5a", "means": "#17becf",
           "randomk": "#bcbd22", "powersgd": "#84c100"}
KINDS = {"": "", "plain": ", `equalize=False`", "cold": ", `warmup_steps=0`", "sites": " between pairs, `int8` in them"}
ARMS = ["dense"] + [f"{codec}_{kind}".strip("_") for codec in COLOURS for kind in KINDS]
# What must be equal in all runs that stand in one table.
SHARED = ("ranks", "parameters", "steps", "warmup_steps", "width", "layers", "context", "batch", "lr")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=ROOT / "build/bible.txt", help="what to learn from [%(default)s]")
    parser.add_argument("--results", type=Path, default=ROOT / "build/codec_convergence.jsonl",
                        help="a line for each run; another file for other options [%(default)s]")
    parser.add_argument("--images", type=Path, help="folder for codecs.png and .svg [nothing is drawn]")
    parser.add_argument("--plot-only", action="store_true", help="train nothing: table and picture of RESULTS")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS, metavar="ARM", help=" ".join(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="SEED", help="[1 2 3]")
    parser.add_argument("--steps", type=int, default=300, help="[%(default)s]")
    parser.add_argument("--warmup-steps", type=int, help="of them, averaged exactly [a tenth]")
    parser.add_argument("--evaluations", type=int, default=10, help="[%(default)s]")
    parser.add_argument("--width", type=int, default=64, help="[%(default)s]")
    parser.add_argument("--layers", type=int, default=2, help="[%(default)s]")
    parser.add_argument("--context", type=int, default=64, help="[%(default)s]")
    parser.add_argument("--batch", type=int, default=8, help="sequences of each rank [%(default)s]")
    parser.add_argument("--lr", type=float, default=2e-3, help="[%(default)s]")
    options = parser.parse_args()
    if options.warmup_steps is None:
        options.warmup_steps = options.steps // 10
    return options


# ---- training ----


class Hooked:
    """onebit's ddp_hook, and the bytes that it has sent."""

    def __init__(self, communicator, model, arm, options):
        import onebit.torch

        codec, _, kind = arm.partition("_")
        # Flat: with "auto" a machine's own memory would be fast enough for exact averages.
        self._state = onebit.torch.HookState(
            communicator=communicator,
            warmup_steps=0 if kind == "cold" else options.warmup_steps,
            equalize=kind != "plain",
            codec=codec,
            algorithm="levels" if kind == "sites" else "flat",
            levels=[(communicator.rank // 2, "int8")] if kind == "sites" else None,
        )
        model.register_comm_hook(self._state, onebit.torch.ddp_hook)

    def bytes_sent(self):
        return self._state.info.bytes_sent

    def last_bytes(self):
        """(bytes that the last step has sent, bytes of a float32 ring allreduce)"""
        return self._state.info.last_bytes_sent, self._state.info.dense_bytes


class Dense:
    """DDP by itself. Its bytes are those of a ring allreduce: gloo doesn't say what it sends."""

    def __init__(self, model, ranks):
        self._per_step = 2 * (ranks - 1) / ranks * 4 * sum(p.numel() for p in model.parameters())
        self._steps = 0

    def bytes_sent(self):
        self._steps += 1
        return self._per_step * self._steps

    def last_bytes(self):
        return self._per_step, self._per_step


class Trainer:
    """Of one arm after the other."""

    def __init__(self, options):
        import torch.distributed as dist
        from train_transformer import parts_of, read_text

        import onebit.torch

        self.options = options
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.communicator = onebit.torch.communicator()
        self.mine, self.held_out = parts_of(read_text(options.text), self.rank, self.ranks)

    def held_out_loss(self, model):
        """The same samples at all times; each rank computes its share of them."""
        import torch
        import torch.distributed as dist
        from train_transformer import held_out_losses

        losses = held_out_losses(model, self.held_out, self.options.context, range(self.rank, 8, self.ranks))
        total = torch.tensor([sum(losses), len(losses)], dtype=torch.float64)
        dist.all_reduce(total)
        return (total[0] / total[1]).item()

    def train(self, arm, seed):
        """A line of the results."""
        import torch
        from torch.nn.parallel import DistributedDataParallel
        from train_transformer import Transformer, loss_of

        options = self.options
        begin = time.perf_counter()
        torch.manual_seed(seed)
        model = Transformer(options.width, options.layers, options.context)
        wrapped = DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.0)
        way = Dense(model, self.ranks) if arm == "dense" else Hooked(self.communicator, wrapped, arm, options)
        generator = torch.Generator().manual_seed(1000 * seed + self.rank)
        curve = []  # steps, bytes sent, held-out loss
        for step in range(1, options.steps + 1):
            optimizer.zero_grad()
            loss_of(wrapped, self.mine, options.context, options.batch, generator).backward()
            optimizer.step()
            sent = way.bytes_sent()
            if step % max(1, options.steps // options.evaluations) == 0 or step == options.steps:
                curve.append((step, sent, self.held_out_loss(model)))
        last, float32 = way.last_bytes()
        return {
            "arm": arm, "seed": seed, "ranks": self.ranks, "parameters": sum(p.numel() for p in model.parameters()),
            **{name: getattr(options, name) for name in SHARED[2:]},
            "bits_per_element": 32 * last / float32, "curve": curve, "seconds": time.perf_counter() - begin,
        }


def train_all(options):
    """Rank 0 alone returns True."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    found = read(options)
    for name in SHARED[2:] if found else ():
        if found[0][name] != getattr(options, name):
            sys.exit(f"codec_convergence.py: {options.results} has runs with {name}={found[0][name]}: name another")
    trainer = Trainer(options)
    done = [{(run["arm"], run["seed"]) for run in found}]
    dist.broadcast_object_list(done)
    for seed in options.seeds:  # outside: the machine's hours are shared by all arms
        for arm in options.arms:
            if (arm, seed) in done[0]:
                continue
            run = trainer.train(arm, seed)
            if trainer.rank == 0:
                with options.results.open("a") as file:
                    file.write(json.dumps(run) + "\n")
                print(f"{arm}, seed {seed}: {run['curve'][-1][2]:.4f} after {run['seconds']:.0f} s", file=sys.stderr)
    dist.barrier()
    dist.destroy_process_group()
    return trainer.rank == 0


# ---- reading ----


def read(options):
    if not options.results.exists():
        return []
    runs = [json.loads(line) for line in options.results.read_text().splitlines()]
    for name in SHARED:
        if len({run[name] for run in runs}) > 1:
            sys.exit(f"codec_convergence.py: {options.results} holds runs that differ in \"{name}\"")
    return runs


def by_arm(runs):
    """For each arm its runs by seed."""
    return {arm: found for arm in ARMS if (found := {run["seed"]: run for run in runs if run["arm"] == arm})}


def final(run):
    return run["curve"][-1][2]


# ---- the table ----


def name_of(arm):
    codec, _, kind = arm.partition("_")
    return "dense (DDP)" if arm == "dense" else codec + KINDS[kind]


def row(arm, found, dense):
    losses = [final(run) for run in found.values()]
    ratios = [final(run) / final(dense[seed]) for seed, run in found.items() if seed in dense]
    run = next(iter(found.values()))
    bits = run["bits_per_element"]
    float32 = run["steps"] * 8 * (run["ranks"] - 1) / run["ranks"] * run["parameters"]
    ratio = f"{statistics.fmean(ratios):.4f}" if ratios else ""
    return (f"| {name_of(arm)} | {bits:.2f} | {statistics.fmean(losses):.3f} | {min(losses):.3f} | {max(losses):.3f} "
            f"| {ratio} | {bits / 32:.3f} | {run['curve'][-1][1] / float32:.3f} |")


def table(arms):
    """Ratios of losses: to dense with the same seed, their mean; of bytes: to those of a float32 ring allreduce."""
    lines = [
        "| codec | bits per element | held-out loss, mean | least | most | loss over dense's "
        "| bytes over float32's, last step | the same, all steps |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join(lines + [row(arm, found, arms.get("dense", {})) for arm, found in arms.items()])


# ---- drawing ----


def draw_curve(axes, found, label, color, style="-", width=1.6):
    """Mean and range over the seeds."""
    steps = list(zip(*(run["curve"] for run in found.values())))  # of each evaluation, every seed's
    sent = [evaluations[0][1] / 1e6 for evaluations in steps]
    losses = [[loss for *_, loss in evaluations] for evaluations in steps]
    mean = [statistics.fmean(values) for values in losses]
    axes.fill_between(sent, [min(values) for values in losses], [max(values) for values in losses], color=color,
                      alpha=0.15, linewidth=0)
    axes.plot(sent, mean, style, color=color, label=label, linewidth=width)
    axes.plot(sent[-1:], mean[-1:], "o", color=color, markersize=4)


def draw(options, arms):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import LogLocator

    run = next(iter(next(iter(arms.values())).values()))
    pyplot.rcParams.update({"font.size": 9.5, "svg.hashsalt": "onebit"})  # the same file for the same results
    figure, panels = pyplot.subplots(1, 2, figsize=(10.5, 5), sharey=True)
    titles = f"{run['warmup_steps']} exact steps first", "no warm-up"
    for axes, title, kind in zip(panels, titles, ("", "_cold")):
        if "dense" in arms:
            draw_curve(axes, arms["dense"], "dense (DDP)", "#222222")
        for codec, color in COLOURS.items():
            if codec + kind in arms:  # two wider, because fp4 and float16 lie on them
                draw_curve(axes, arms[codec + kind], codec, color, width=3.5 if codec in ("int4", "bfloat16") else 1.6)
        if not kind and "sign_plain" in arms:  # others don't differ visibly
            draw_curve(axes, arms["sign_plain"], "sign, equalize=False", COLOURS["sign"], "--", 1.2)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.set_title(title)
        axes.set_xlabel("sent by each rank [MB]")
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylim(top=3.1)  # what is above are the first steps of a cold topk
    panels[0].set_ylabel("held-out loss [nats per byte]")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8.5, loc="lower center", ncols=7, columnspacing=1.2,
                  handlelength=1.6)
    figure.subplots_adjust(left=0.06, right=0.98, top=0.88, bottom=0.2, wspace=0.06)
    figure.suptitle(f"Transformer of {run['parameters'] / 1e3:.0f} k parameters, {run['ranks']} ranks, {run['steps']} "
                    f"steps; mean and range of {max(map(len, arms.values()))} seeds", fontsize=10.5)
    options.images.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.images / "codecs.png", dpi=150)
    figure.savefig(options.images / "codecs.svg", metadata={"Date": None})


def main():
    options = parse_arguments()
    if not options.plot_only and not train_all(options):
        return
    arms = by_arm(read(options))
    if not arms:
        sys.exit(f"codec_convergence.py: there are no results in {options.results}")
    print(table(arms))
    if options.images:
        draw(options, arms)


if __name__ == "__main__":
    main()
