# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The page of a report: HTML in one file."""

import html
import io
from typing import Any, Dict, Iterable, Optional, Sequence

from onebit.report._advice import CODEC_GAIN, EXACT_GAIN, STEP_GAIN, count, gains_of, step_gains, verdict
from onebit.report._measure import EXACT, STEP_COMPRESSED, STEP_EXACT, YOURS

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 52rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.verdict { background: var(--soft); border-radius: .5rem; padding: .75rem 1rem; }
.verdict p { margin: .25rem 0; } .verdict p:first-child { font-weight: 600; font-size: 1.1rem; }
.table { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; } figure { margin: 1rem 0; background: #fff; border-radius: .5rem; }
figure svg { width: 100%; height: auto; } small, .facts { color: #777; }
"""
_LABELS = {EXACT: "onebit, exact", STEP_EXACT: "step: Adam, exact", STEP_COMPRESSED: "step: 1-bit Adam"}


def page(report: Dict[str, Any], parameters: Sequence[int], compute: Optional[float]) -> str:
    """HTML. `compute`: seconds of a step's forward and backward passes, if they are known."""
    hosts = len(set(report["hosts"]))
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>Does compression pay here?</title><style>{_STYLE}</style></head><body>",
        "<h1>Does compression pay here?</h1>",
        f"<p class='facts'>{len(report['hosts'])} ranks on {hosts} host{'s' if hosts > 1 else ''} &middot; "
        f"onebit {_text(report['onebit'])} over {_text(report['transport'])} &middot; {_text(report['date'])}</p>",
    ]
    if report["unfinished"]:
        parts.append(f"<p><strong>Not finished:</strong> {_text(report['unfinished'])}.</p>")
    parts.append("<div class='verdict'>" + "".join(f"<p>{_text(line)}</p>" for line in verdict(report)) + "</div>")
    parts += _gains(report)
    parts += _steps(report, parameters, compute)
    for level in report["levels"]:
        parts += _level(level, report["dense"])
    parts += _facts(report)
    return "\n".join([*parts, "</body></html>", ""])


def _gains(report: Dict[str, Any]) -> Iterable[str]:
    gains = gains_of(report)
    if not gains:
        return
    largest = max(time["elements"] for time in report["levels"][0]["times"])
    yield "<h2>What pays, from which size on</h2>"
    yield _table(
        ["average", "pays from", f"times as fast at {count(largest)}"],
        [
            [
                _LABELS.get(gain.way, gain.way),
                "never" if gain.from_elements is None else f"{count(gain.from_elements)} elements",
                f"{gain.times_as_fast:.2f}",
            ]
            for gain in gains
        ],
    )
    yield (
        f"<p><small>Beside {_text(report['dense'])}. onebit's exact average pays where it takes at most "
        f"{EXACT_GAIN:.0%} of that one's time. A codec loses accuracy: it pays where it takes at most {CODEC_GAIN:.0%} "
        "of the time of either exact average.</small></p>"
    )


def _steps(report: Dict[str, Any], parameters: Sequence[int], compute: Optional[float]) -> Iterable[str]:
    gains = step_gains(report, parameters)
    if not gains:
        return
    yield "<h2>What a training step gains with 1-bit Adam</h2>"
    head = ["parameters", "now, ms", "exact Adam, ms", "1-bit Adam, ms"]
    head.append("pays below, s" if compute is None else f"times as fast with {compute:g} s of passes")
    yield _table(
        head,
        [
            [count(gain.parameters) + ("" if gain.measured else " *"), _ms(gain.now), _ms(gain.exact),
             _ms(gain.compressed),
             _short(gain.pays_below) if compute is None else f"{gain.times_as_fast(compute):.2f}"]
            for gain in gains
        ],
    )
    yield (
        "<p><small>Now: the average that you have, then Adam. The next two are onebit's; 1-bit Adam is behind its "
        "warm-up. * is extrapolated."
        + (
            f" Pays below: where forward and backward passes take less than that, a whole step is {STEP_GAIN:g} times "
            "as fast as now. --compute tells the report how long yours take."
            if compute is None
            else ""
        )
        + " The table supposes that averaging begins behind the backward pass. Where yours begins earlier, a step "
        "gains less.</small></p>"
    )


def _level(level: Dict[str, Any], dense: str) -> Iterable[str]:
    times = level["times"]
    yield f"<h2>Times: {_text(level['name'])} ({level['ranks']} ranks)</h2>"
    if not times:
        yield "<p>Not measured.</p>"
        return
    labels = {**_LABELS, YOURS: "yours"}
    ways = list(dict.fromkeys(time["way"] for time in times))
    drawn = _plot(times, ways, labels)
    if drawn is None:
        yield "<p><small>No plot: matplotlib can't be imported (pip install 'onebit[report]').</small></p>"
    else:
        yield f"<figure>{drawn}</figure>"
    cells = {(time["elements"], time["way"]): _cell(time) for time in times}
    sizes = sorted({time["elements"] for time in times})
    yield _table(
        ["elements", *(f"{labels.get(way, way)}, ms" for way in ways)],
        [[count(size), *(cells.get((size, way), "") for way in ways)] for size in sizes],
    )
    if any(cell.endswith("=") for cell in cells.values()):
        yield "<p><small>= onebit averaged exactly, for that is faster at this size.</small></p>"
    if YOURS in ways:
        yield f"<p><small>Yours: {_text(dense)}.</small></p>"
    if level["left_out"]:
        smallest = count(min(level["left_out"]))
        yield f"<p><small>From {smallest} elements on there was no time left (--seconds).</small></p>"


def _cell(time: Dict[str, Any]) -> str:
    """A time; a codec's has a mark if the library did not use the codec."""
    exact_instead = time["way"] != EXACT and time.get("algorithm") == "dense"
    return _ms(time["seconds"]) + (" =" if exact_instead else "")


def _facts(report: Dict[str, Any]) -> Iterable[str]:
    yield "<h2>How it was measured</h2>"
    hosts = ", ".join(f"{host} ({report['hosts'].count(host)})" for host in dict.fromkeys(report["hosts"]))
    yield f"<p><code>{_text(report['command'])}</code></p><p>Hosts and their ranks: {_text(hosts)}.</p>"
    yield (
        "<p>Values are float32 in the host's memory. Each time is a median of 3 to 15 rounds; in a round all ways come "
        "in turn. A round's time is that of its slowest rank.</p>"
    )
    for note in report["notes"]:
        yield f"<p>{_text(note)}</p>"


def _plot(times: Sequence[Dict[str, Any]], ways: Sequence[str], labels: Dict[str, str]) -> Optional[str]:
    """SVG of seconds by bytes; None if matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.2))
    for way in ways:
        points = [(time["elements"], time["seconds"] * 1000) for time in times if time["way"] == way]
        is_step = way in (STEP_EXACT, STEP_COMPRESSED)
        axes.plot(*zip(*points), label=labels.get(way, way), marker="o", markersize=3,
                  linestyle="--" if is_step else "-", color="black" if way == YOURS else None)
    axes.set(xscale="log", yscale="log", xlabel="elements", ylabel="milliseconds")
    axes.xaxis.set_major_formatter(lambda value, _: count(int(value)))
    axes.set_xticks(sorted({time["elements"] for time in times}))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    drawn = io.StringIO()
    figure.savefig(drawn, bbox_inches="tight")
    pyplot.close(figure)
    return drawn.getvalue()[drawn.getvalue().index("<svg") :]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def row(cells, tag):
        return "<tr>" + "".join(f"<{tag}>{_text(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f"<div class='table'><table><thead>{row(head, 'th')}</thead><tbody>{body}</tbody></table></div>"


def _ms(seconds: float) -> str:
    return _short(seconds * 1000)


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def _text(text: str) -> str:
    return html.escape(str(text), quote=False)
