"""The charts as XML: the drawing, and its text alternative."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from msgspec.structs import replace

from cockpit.report.charts.chart import chart_svg, is_log
from cockpit.report.charts.timeline import shares_svg, timeline_svg
from cockpit.report.document import (
    Band,
    Chart,
    Kind,
    Line,
    Mark,
    MarkKind,
    Share,
    Shares,
    Span,
    Timeline,
)
from tests.report.runs import EVIL

SVG = "{http://www.w3.org/2000/svg}"
TIMES = [100.0 + n for n in range(100)]
CHART = Chart(
    "loss",
    "Loss",
    Kind.NUMBER,
    100.0,
    200.0,
    (Line("loss", TIMES, [3.0 - n / 50 for n in range(100)]),),
)


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def titles(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}title")]


def points(root: ElementTree.Element, css: str = "c c0") -> list[list[tuple[float, float]]]:
    """The lines of a path."""
    path = next(e for e in root.iter(f"{SVG}path") if e.get("class") == css)
    lines = (path.get("d") or "").split("M")[1:]
    return [
        [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", line)]
        for line in lines
    ]


def test_a_chart_reports_what_it_shows_to_who_cannot_see_it() -> None:
    root = parsed(chart_svg(CHART))
    assert root.get("role") == "img"
    assert titles(root)[0] == "Loss"
    text = root.find(f"{SVG}desc")
    assert text is not None
    assert text.text == "loss: from 3 to 1.02, lowest 1.02, highest 3."


def test_a_falling_curve_falls_from_left_to_right_inside_the_picture() -> None:
    (line,) = points(parsed(chart_svg(CHART)))
    assert len(line) == 100
    assert [x for x, _ in line] == sorted(x for x, _ in line)
    assert [y for _, y in line] == sorted(y for _, y in line), "down is larger in SVG"
    assert all(0 <= x <= 560 and 0 <= y <= 210 for x, y in line)


def test_a_break_and_a_hole_tear_the_line() -> None:
    torn = replace(CHART, breaks=(150.5,))
    assert len(points(parsed(chart_svg(torn)))) == 2
    kept = [n for n in range(100) if not 30 <= n < 60]
    line = Line("loss", [TIMES[n] for n in kept], [1.0] * len(kept))
    assert len(points(parsed(chart_svg(replace(CHART, lines=(line,)))))) == 2


def test_non_finite_values_are_marked_and_counted() -> None:
    values = [1.0] * 60 + [math.nan] * 30 + [math.inf] + [1.0] * 9
    root = parsed(chart_svg(replace(CHART, lines=(Line("loss", TIMES, values),))))
    assert any("31 values are not finite" in title for title in titles(root))
    assert "NaN" not in "".join(e.get("d", "") for e in root.iter(f"{SVG}path"))
    assert "nan" not in chart_svg(replace(CHART, lines=(Line("loss", TIMES, values),))).replace(
        'class="nan"', ""
    )


def test_a_curve_of_nothing_but_nan_has_a_chart_all_the_same() -> None:
    line = Line("loss", TIMES, [math.nan] * 100)
    root = parsed(chart_svg(replace(CHART, lines=(line,))))
    text = root.find(f"{SVG}desc")
    assert text is not None
    assert text.text == "loss: no finite value, 100 not finite."


def test_marks_have_a_shape_and_a_text() -> None:
    marks = [Mark(kind, 110.0 + n * 10, f"it {n}") for n, kind in enumerate(MarkKind)]
    marks.append(Mark(MarkKind.DRILL, 900.0, "long after"))
    root = parsed(chart_svg(CHART, marks))
    reported = titles(root)
    for kind in MarkKind:
        assert any(title.startswith(f"{kind.value}") for title in reported)
    assert "alert at +40.0 s: it 3" in reported
    assert not any("long after" in title for title in reported)


def test_a_thousand_checkpoints_do_not_make_a_thousand_marks() -> None:
    marks = [Mark(MarkKind.CHECKPOINT, 100.0 + n / 10, "c") for n in range(1_000)]
    marks.append(Mark(MarkKind.DRILL, 199.0, "late"))
    root = parsed(chart_svg(CHART, marks))
    assert len(titles(root)) == 3, "the picture, all checkpoints, the drill"
    assert "checkpoint: 1,000 of them" in titles(root)
    assert 50 < len(points(root, "s")) < 150


def test_the_band_holds_its_extremes_however_many_points_there_are() -> None:
    times = [100.0 + n / 100 for n in range(10_000)]
    high = [2.0] * 10_000
    high[5_000] = 9.0
    chart = replace(CHART, band=Band(times, [1.0] * 10_000, high))
    root = parsed(chart_svg(chart))
    (shape,) = points(root, "band")
    ys = [y for _, y in shape]
    assert min(ys) < 40 < max(ys)
    assert len(ys) <= 700


def test_only_a_curve_that_clings_to_the_bottom_is_drawn_logarithmic() -> None:
    falling = [3 * math.exp(-n / 10) for n in range(100)]
    assert is_log(replace(CHART, lines=(Line("loss", TIMES, falling),)))
    assert not is_log(replace(CHART, lines=(Line("epoch", TIMES, list(range(1, 101))),)))
    assert not is_log(replace(CHART, lines=(Line("loss", TIMES, [*falling[:-1], 0.0]),)))
    assert not is_log(replace(CHART, kind=Kind.RATE, lines=(Line("r", TIMES, falling),)))


def test_hostile_names_stay_text() -> None:
    chart = replace(CHART, title=EVIL, lines=(Line(EVIL, TIMES, [math.nan] * 100),))
    root = parsed(chart_svg(chart, [Mark(MarkKind.DRILL, 150.0, EVIL)]))
    assert not [e for e in root.iter() if e.tag.removeprefix(SVG) in ("script", "img", "style")]
    assert not [k for e in root.iter() for k in e.attrib if k.startswith("on")]


def test_a_timeline_has_a_lane_an_attempt_and_bars_as_long_as_they_took() -> None:
    spans = (
        Span("attempt 1", "starting", 0.0, 10.0),
        Span("attempt 1", "running", 10.0, 50.0),
        Span("attempt 2", "running", 60.0, 100.0),
    )
    timeline = Timeline("phases", 0.0, 100.0, spans, ("running", "starting"))
    root = parsed(timeline_svg(timeline, [Mark(MarkKind.DRILL, 50.0, "kill")]))
    bars = list(root.iter(f"{SVG}rect"))
    widths = [float(bar.get("width", "0")) for bar in bars]
    assert widths[1] == widths[2] == 4 * widths[0]
    assert len({bar.get("y") for bar in bars}) == 2
    assert "attempt 1: running, 40.0 s, from +10.0 s" in titles(root)
    assert "drill: kill" in titles(root)
    assert "Phases by attempt" in titles(root)
    assert root.findtext(f"{SVG}desc") == "2 attempts over 1 m 40 s."


def test_timeline_of_a_drill_has_lanes_of_faults() -> None:
    spans = (Span("pod-kill", "pod ready", 0.0, 10.0),)
    root = parsed(timeline_svg(Timeline("phases", 0.0, 10.0, spans, ("pod ready",), "fault")))
    assert "Phases by fault" in titles(root)
    assert root.findtext(f"{SVG}desc") == "1 fault over 10.0 s."


def test_shares_fill_the_bar() -> None:
    parts = Shares("goodput", "Goodput", (Share("useful", 75.0), Share("restart", 25.0)))
    root = parsed(shares_svg(parts))
    widths = [float(bar.get("width", "0")) for bar in root.iter(f"{SVG}rect")]
    assert sum(widths) == 1_140
    assert widths[0] == 3 * widths[1]
