"""Results as Markdown: first the findings and what to do, then the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from training.bench.results import Results
from training.bench.section import Finding, Level, Section, Table

HEADINGS = {
    Level.PROBLEM: "Problems",
    Level.NOTE: "Notes",
    Level.GOOD: "As it should be",
}


def markdown(results: Results, sections: Mapping[str, Section]) -> str:
    """`sections`: by part. Plots are referenced as files beside the report."""
    every = [finding for section in sections.values() for finding in section.findings]
    parts = [
        f"# Benchmark of training on {results.machine}",
        f"{results.began_at}, {results.took_s:.0f} s"
        + (", quick: a test of the measurement, its numbers mean little" if results.quick else "")
        + f". {results.how}",
        "## In short",
        in_short(every),
    ]
    for level, heading in HEADINGS.items():
        if found := [finding for finding in every if finding.level is level]:
            parts += [f"### {heading}", "\n".join(map(_bullet, found))]
    if results.failed:
        lines = [f"- {part}: {why}" for part, why in sorted(results.failed.items())]
        parts += ["### Not measured", "\n".join(lines)]
    for section in sections.values():
        parts += [f"## {section.title}", section.how]
        parts += [table(item) for item in section.tables if item.rows]
        parts += [f"![{plot.title}]({plot.name}.svg)" for plot in section.plots]
    return "\n\n".join(parts) + "\n"


def in_short(findings: Sequence[Finding]) -> str:
    """The number of findings of each kind, and the first recommendations."""
    problems = [finding for finding in findings if finding.level is Level.PROBLEM]
    good = sum(finding.level is Level.GOOD for finding in findings)
    if not problems:
        return f"Nothing that was measured misses its threshold ({good} met)."
    todo = [finding.advice for finding in problems if finding.advice]
    steps = "\n".join(f"{at}. {advice}" for at, advice in enumerate(dict.fromkeys(todo), 1))
    count = f"{len(problems)} of {len(problems) + good} thresholds are missed."
    return f"{count} What to do:\n\n{steps}" if steps else count


def table(item: Table) -> str:
    rows = [item.columns, ("---",) * len(item.columns), *item.rows]
    return "\n".join("| " + " | ".join(map(_cell, row)) + " |" for row in rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _bullet(finding: Finding) -> str:
    return f"- {finding.sentence}" + (f" **{finding.advice}**" if finding.advice else "")
