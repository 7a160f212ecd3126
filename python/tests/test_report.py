# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""onebit-report: what it advises, the page, and what can go wrong on the way."""

import json
import os
import signal
import subprocess
import sys
import threading
from html.parser import HTMLParser

import pytest

import onebit
from onebit.report import __main__ as command
from onebit.report._advice import Curve, count, gains_of, step_gains, verdict
from onebit.report._measure import Plan, blank, measure
from onebit.report._page import page
from onebit.report._ranks import Ranks
from ranks import free_address, on_ranks, run_together

SIZES = [1024, 4096, 16384, 65536, 262144]


def report(**seconds):
    """One in which a way takes so many (start, per element) seconds."""
    times = [
        {"way": way, "elements": size, "seconds": start + each * size}
        for size in SIZES
        for way, (start, each) in seconds.items()
    ]
    return {
        "onebit": "1.2.3", "date": "2026-01-02 03:04", "command": "python -m onebit.report", "hosts": ["a", "b"],
        "notes": [], "transport": "tcp", "dense": "the average of <theirs>", "unfinished": None,
        "levels": [{"name": "all ranks", "ranks": 2, "times": times, "left_out": []}],
    }


def test_a_curve_goes_through_what_was_measured_and_beyond():
    times = report(yours=(1.0, 2.0))["levels"][0]["times"]
    curve = Curve(times, "yours")
    for size in [*SIZES, 1, 3000, 10**9]:
        assert curve(size) == pytest.approx(1.0 + 2.0 * size)
    points = [(1, 5.0), (2, 3.0), (3, 4.0), (4, 2.0)]
    uneven = [{"way": "yours", "elements": size, "seconds": time} for size, time in points]
    assert [Curve(uneven, "yours")(size) for size in (0.5, 1, 2, 2.5, 3, 4, 9)] == [5.0, 5.0, 3.0, 3.5, 4.0, 2.0, 2.0]
    one = Curve(times[:1], "yours")
    assert one(2048) == pytest.approx(2 * one(1024)) and one(1) == one(1024)


def test_a_codec_pays_from_the_size_on_that_its_start_is_worth():
    measured = report(yours=(0, 1e-6), exact=(0, 1e-6), sign=(0.01, 1e-8), int8=(0, 0.9e-6))
    gains = {gain.way: gain for gain in gains_of(measured)}
    # 0.01 + s/10^8 <= 0.8 s/10^6, that is s >= 12,659
    assert gains["sign"].from_elements == 16384
    assert gains["sign"].times_as_fast == pytest.approx(0.262144 / (0.01 + 0.00262144))
    assert gains["int8"].from_elements is None  # a tenth quicker is too little for a codec
    assert gains["exact"].from_elements is None
    text = " ".join(verdict(measured))
    assert text.startswith("Compression pays here: 'sign' from 16 Ki elements on.") and "OneBitAdam" in text
    assert "'int8'" not in text


def test_what_is_quicker_at_small_sizes_only_does_not_pay():
    measured = report(yours=(0.1, 1e-6), exact=(0.1, 1e-6), sign=(0, 2e-6), int8=(0, 2e-6))
    assert all(gain.from_elements is None for gain in gains_of(measured))
    assert verdict(measured)[-1].endswith("stay with what you have.")


def test_onebits_exact_average_may_be_all_that_pays():
    text = " ".join(verdict(report(yours=(0, 1e-6), exact=(0, 1e-7), sign=(0, 0.9e-7))))
    assert "does not pay" in text and 'algorithm="dense"' in text and "10.0 times as fast" in text


def test_a_steps_gain_is_that_of_its_parts():
    measured = report(yours=(0, 10e-6), exact=(0, 8e-6), sign=(0, 1e-6), adam=(0, 8.5e-6), onebit_adam=(0, 1.5e-6))
    small, large = step_gains(measured, [100_000, 10_000_000])
    assert small.measured and not large.measured
    assert large.now == pytest.approx(105.0) and large.compressed == pytest.approx(15.0)
    assert large.times_as_fast(0) == pytest.approx(7) and large.times_as_fast(75) == pytest.approx(2)
    assert large.times_as_fast(large.pays_below) == pytest.approx(1.1)
    assert not step_gains(measured, [1000])[0].measured
    measured["levels"][0]["times"] = [t for t in measured["levels"][0]["times"] if t["elements"] == 65536]
    assert step_gains(measured, [10]) == []  # of one size nothing else follows


@pytest.mark.parametrize(
    "elements, text",
    [(1, "1"), (1000, "1 k"), (1024, "1 Ki"), (3 << 20, "3 Mi"), (10**7, "10 M"), (2 * 10**9, "2 G"), (1.5e9, "1.5 G")],
)
def test_counts_are_short(elements, text):
    assert count(elements) == text


class Checked(HTMLParser):
    """Whether each tag is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "!doctype"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("compute", [None, 0.25])
def test_the_page_says_what_was_measured(compute):
    measured = report(yours=(0, 10e-6), exact=(0, 8e-6), sign=(0, 1e-6), adam=(0, 8.5e-6), onebit_adam=(0, 1.5e-6))
    measured["unfinished"] = "interrupted by SIGINT"
    text = " ".join(Checked(page(measured, [10**7], compute)).text)
    for part in ["the average of <theirs>", "interrupted by SIGINT", "16 Ki", "10 M *", "105000", *verdict(measured)]:
        assert part in text
    assert ("times as fast with 0.25 s" in text) == (compute is not None)


# ---- the command ----


def as_ranks(tmp_path, *options, size=2, **environment):
    """Runs it on so many ranks, as torchrun would start them. What they print."""
    host, port = free_address().split(":")
    place = {"MASTER_ADDR": host, "MASTER_PORT": port, "WORLD_SIZE": str(size), "USE_LIBUV": "0", **environment}
    arguments = ["--seconds", "3", "--max-elements", "65536", "-o", str(tmp_path / "page.html"), *options]
    return run_together("report.py", [arguments] * size, [{"RANK": str(rank), **place} for rank in range(size)])


def test_two_ranks_write_a_page_and_its_times(tmp_path):
    pytest.importorskip("torch")
    printed = as_ranks(tmp_path, "--codecs", "sign,int8")
    assert printed.count("ends with 0") == 2, printed
    measured = json.loads((tmp_path / "page.json").read_text())
    assert measured["unfinished"] is None and measured["dense"].startswith("gloo")
    ways = {(time["way"], time["elements"]) for time in measured["levels"][0]["times"]}
    wanted = {(way, size) for way in ("yours", "exact", "sign", "int8") for size in SIZES[:4]}
    assert ways == wanted | {("adam", 65536), ("onebit_adam", 65536)}
    assert all(0 < time["seconds"] < 3 for time in measured["levels"][0]["times"])
    Checked((tmp_path / "page.html").read_text())
    drawn = tmp_path / "drawn.html"
    assert command.main(["--draw", str(tmp_path / "page.json"), "-o", str(drawn)]) == 0
    assert "Not finished" not in drawn.read_text()


def test_a_report_that_is_interrupted_keeps_what_it_has(tmp_path):
    pytest.importorskip("torch")
    printed = as_ranks(tmp_path, INTERRUPTED_BY=str(signal.SIGTERM.value), ONEBIT_TIMEOUT="5")
    assert printed.count("ends with 1") == 2
    assert "interrupted by SIG" in printed
    measured = json.loads((tmp_path / "page.json").read_text())
    assert {time["elements"] for time in measured["levels"][0]["times"]} == {1024}
    assert "Not finished" in (tmp_path / "page.html").read_text()


def measured_by_threads(plan, hosts):
    """The levels of a report by so many threads, whose hosts are called so."""
    size = len(hosts)
    meeting = threading.Barrier(size, timeout=60)
    shelf = [None] * size

    def on_rank(comm):
        def gather(mine):
            shelf[comm.rank] = mine
            meeting.wait()
            all_ = list(shelf)
            meeting.wait()
            return all_

        exact = onebit.Allreduce(comm, 1024, algorithm="dense")
        ranks = Ranks(comm, "theirs", lambda array: exact.run(array[:1024]), gather, meeting.wait, comm.close)
        found = {**blank(ranks, ""), "hosts": hosts}
        measure(ranks, plan, found, lambda done, of: None)
        return found["levels"]

    return on_ranks(size, on_rank)[0]


def test_a_host_of_several_ranks_is_a_level():
    levels = measured_by_threads(Plan(4096, 2, ["int8"]), ["a", "b", "a"])
    assert [(level["name"], level["ranks"]) for level in levels] == [
        ("all ranks", 3), ("inside a host", 2), ("between hosts", 2)
    ]
    for level in levels:
        yours = {"yours"} if level is levels[0] else set()
        assert {time["way"] for time in level["times"]} == {"exact", "int8"} | yours
        assert {time["elements"] for time in level["times"]} == {1024, 4096} and level["left_out"] == []


def test_sizes_that_would_take_too_long_are_left_out():
    (level,) = measured_by_threads(Plan(65536, 1e-6, ["int8"]), ["a", "a"])
    assert {time["elements"] for time in level["times"]} == {1024} and level["left_out"] == SIZES[1:4]
    text = page({**report(), "levels": [level]}, [10], None)
    assert "From 4 Ki elements on there was no time left" in text


@pytest.mark.parametrize("ranks, most, sizes", [
    (2, 1000, []), (2, 1024, [1024]), (2, 5000, [1024, 5000]), (2, 8192, [1024, 4096, 8192]), (2, 7000, [1024, 7000]),
    (3000, 4000, []), (3000, 4096, [4096]), (3000, 100000, [4096, 16384, 100000]),
])  # fmt: skip
def test_every_size_has_an_element_for_each_rank(ranks, most, sizes):
    assert Plan(most, 1, []).sizes(ranks) == sizes


@pytest.mark.parametrize(
    "environment, said",
    [
        ({"size": 1}, "one rank alone"),
        ({"ODD_RANK": "1", "ODD_OPTIONS": "--max-elements 4096"}, "max_elements is 65536 on rank 0, 4096 on rank 1"),
    ],
)
def test_ranks_that_cannot_be_measured_are_told_why(tmp_path, environment, said):
    pytest.importorskip("torch")
    printed = as_ranks(tmp_path, **environment)
    size = environment.get("size", 2)
    assert printed.count("ends with 2") == printed.count(said) == size, printed
    assert not (tmp_path / "page.html").exists()


def test_a_page_that_cannot_be_written_is_known_before_anything_is_measured(tmp_path):
    pytest.importorskip("torch")
    printed = as_ranks(tmp_path, "-o", str(tmp_path / "missing" / "page.html"))
    assert printed.count("ends with 2") == 2 and "No such file" in printed, printed


def test_without_ranks_it_says_how_to_start_it(monkeypatch, capsys):
    for name in ("RANK", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS"):
        monkeypatch.delenv(name, raising=False)
    assert command.main([]) == 2
    assert "torchrun --nproc_per_node 2 -m onebit.report" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, said",
    [
        (["--codecs", "sign,nonsense"], "nonsense: not one of sign, int8"),
        (["--seconds", "0"], "0: not a finite number above 0"),
        (["--seconds", "nan"], "nan: not a finite number above 0"),
        (["--max-elements", "-1"], "-1: not a finite number above 0"),
        (["--max-elements", "1.5"], "1.5: not a whole number"),
        (["-o", "times.json"], "times.json: not a name for a page"),
        (["--parameters", "1e6,x"], "--parameters"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, said, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(options)
    assert ended.value.code == 2 and said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"levels": 3, "hosts": []}', None])
def test_a_file_that_is_no_report_is_not_drawn(tmp_path, text, capsys):
    file = tmp_path / "times.json"
    if text is not None:
        file.write_text(text)
    assert command.main(["--draw", str(file), "-o", str(tmp_path / "page.html")]) == 2
    assert str(file) in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_the_module_runs_as_a_command():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.run(
        [sys.executable, "-m", "onebit.report", "--help"], env=environment, capture_output=True, text=True, check=True
    )
    assert "--max-elements" in shown.stdout
