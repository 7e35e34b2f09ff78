"""Game days as files: bundled ones, and those that a user writes.

docs/drills.md describes the format. All of it is validated before anything is injected: names of
faults, their parameters, probes and jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cockpit.config.toml_reader import Path as At
from cockpit.config.toml_reader import Reader
from cockpit.drills.faults import catalog
from cockpit.drills.faults.fault import parameter_values
from cockpit.drills.gamedays.gameday import (
    Doing,
    Expect,
    GameDay,
    Inject,
    Launch,
    Scale,
    Step,
    Wait,
)
from cockpit.drills.plan.plan import (
    DrillPlan,
    FaultSpec,
    ProbeSpec,
    TargetSpec,
    Timeouts,
    When,
    checked_blast_radius,
)
from cockpit.drills.probes import hypothesis
from cockpit.format import in_seconds
from cockpit.launch.job import bundled_jobs
from cockpit.model.error import CockpitError, UsageError

KINDS = {
    "drill": "a fault of the catalog",
    "faults": "several faults at once, each a table with `drill`",
    "launch": "a bundled job, unless a run is going",
    "wait_s": "seconds in which nothing is done",
    "expect": "probes that have to hold",
    "scale": "a worker group",
}
"""The key that gives the kind of a step."""
FAULT_KEYS = ("drill", "set", "target", "count", "groups", "allow_head")
DEFAULT_KEYS = (
    "recover_within_s", "max_steps_lost", "max_time_lost_s", "probes", "during", "abort_unless",
    "settle_s", "timeout_s", "optional", "max_pods", "max_share",
)  # fmt: skip
"""Of a drill, and of `[defaults]` for every drill of the day."""
KEYS = {
    "drill": (*FAULT_KEYS, *DEFAULT_KEYS, "seed"),
    "faults": ("faults", *DEFAULT_KEYS, "seed"),
    "launch": ("launch", "workers", "set", "within_s", "always", "resubmit"),
    "wait_s": ("wait_s",),
    "expect": ("expect", "within_s"),
    "scale": ("scale", "to", "within_s"),
}


def shipped() -> tuple[str, ...]:
    """The names of the bundled game days, the quick ones first."""
    found = [path.name for path in (files("cockpit.drills") / "gamedays").iterdir()]
    order = ("smoke", "crash", "hang", "preemption", "storage", "head-loss", "soak")
    names = [name.removesuffix(".toml") for name in found if name.endswith(".toml")]
    return tuple(sorted(names, key=lambda name: (name not in order, order.index(name))))


def game_day(name_or_path: str) -> GameDay:
    """Load a bundled game day by its name, else a file. Raises UsageError with line and column."""
    if name_or_path in shipped():
        inside = files("cockpit.drills") / "gamedays" / f"{name_or_path}.toml"
        return parsed(inside.read_text(encoding="utf-8"), f"{name_or_path}.toml", name_or_path)
    path = Path(name_or_path).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not a text file.", f"{error.reason} at byte {error.start}."
        ) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read.", f"{error.strerror}.") from error
    return parsed(text, str(path), path.stem)


def parsed(text: str, file: str, name: str) -> GameDay:
    """Parse the text. Raises UsageError with line and column."""
    return _File(Reader(file, text), name).day()


class _File:
    def __init__(self, reader: Reader, name: str) -> None:
        self._reader, self._name = reader, name
        self._defaults: Mapping[str, Any] = {}
        self._seed: int | None = None

    def day(self) -> GameDay:
        read, top = self._reader, self._reader.tables
        read.known(top, (), ("about", "seed", "defaults", "step", "guard"), "A game day")
        self._seed = read.whole(top, (), "seed")
        self._defaults = top.get("defaults", {})
        if not isinstance(self._defaults, dict):
            raise read.wrong(("defaults",), "defaults is not a table.", "Write: [defaults]")
        read.known(self._defaults, ("defaults",), DEFAULT_KEYS, "[defaults]")
        self._bounds(self._defaults, ("defaults",), DrillPlan("", ()))
        steps = read.tables_of(top, (), "step")
        if not steps:
            raise read.wrong((), "There is no step.", "Write at least one: [[step]]")
        made = tuple(self._step(raw, ("step", at)) for at, raw in enumerate(steps))
        guard = top.get("guard", {})
        if not isinstance(guard, dict):
            raise read.wrong(("guard",), "guard is not a table.", "Write: [guard]")
        return GameDay(self._name, read.text(top, (), "about"), made, guard)

    def _step(self, raw: Mapping[str, Any], at: At) -> Step:
        read = self._reader
        lines = [kind for kind in KINDS if kind in raw]
        if len(lines) != 1:
            what = "has no action" if not lines else f"is two things: {' and '.join(lines)}"
            keys = next((key for key in raw if key not in KINDS and key != "name"), "")
            if not lines and keys:
                read.known(raw, at, ("name", *{k for of in KEYS.values() for k in of}), "A step")
            raise read.wrong(at, f"Step {_number(at)} {what}.", f"One of: {', '.join(KINDS)}.")
        kind = lines[0]
        read.known(raw, at, ("name", *KEYS[kind]), f"A step with {kind}")
        doing = self._doing(kind, raw, at)
        return Step(read.text(raw, at, "name") or _called(doing), doing)

    def _doing(self, kind: str, raw: Mapping[str, Any], at: At) -> Doing:
        read = self._reader
        match kind:
            case "wait_s":
                return Wait(read.number(raw, at, "wait_s") or 0.0)
            case "expect":
                probes = self._probes(raw, at, "expect")
                return Expect(probes, read.number(raw, at, "within_s", 60.0) or 0.0)
            case "scale":
                if "to" not in raw:
                    raise read.wrong((*at, "scale"), "scale has no size.", "Add: to = 3")
                within_s = read.number(raw, at, "within_s", 180.0) or 0.0
                return Scale(read.text(raw, at, "scale"), read.whole(raw, at, "to") or 0, within_s)
            case "launch":
                return self._launch(raw, at)
        return self._inject(raw, at)

    def _launch(self, raw: Mapping[str, Any], at: At) -> Launch:
        read = self._reader
        name = read.text(raw, at, "launch")
        job = next((job for job in bundled_jobs() if job.name == name), None)
        if job is None:
            names = ", ".join(one.name for one in bundled_jobs())
            raise read.wrong((*at, "launch"), f"There is no job {name!r}.", f"Jobs: {names}.")
        if not job.has("checkpoint_every_steps"):
            raise read.wrong((*at, "launch"), f"Job {name} makes no checkpoint to resume from.")
        settings = read.settings(raw, at, "set")
        for key, value in settings.items():
            try:
                job.require(job.setting(key), value)
            except UsageError as error:
                raise read.wrong((*at, "set", key), error.what, error.why, error.todo) from error
        if (workers := read.whole(raw, at, "workers")) is not None:
            if not job.has("workers"):
                raise read.wrong((*at, "workers"), f"Job {name} has no number of workers.")
            settings["workers"] = str(workers)
        within_s = read.number(raw, at, "within_s", 180.0) or 0.0
        times = read.whole(raw, at, "resubmit") or 0
        return Launch(name, settings, within_s, read.truth(raw, at, "always"), times)

    def _inject(self, raw: Mapping[str, Any], at: At) -> Inject:
        read = self._reader
        faults = tuple(self._faults(raw, at))
        name = read.text(raw, at, "name") or "+".join(spec.fault for spec in faults)
        bare = DrillPlan(name, faults, game_day=self._name, seed=self._seed)
        plan = self._bounds(self._defaults, ("defaults",), bare)
        plan = self._bounds(raw, at, plan)
        if (seed := read.whole(raw, at, "seed")) is not None:
            plan = replace(plan, seed=seed)
        optional = read.truth(raw if "optional" in raw else self._defaults, at, "optional")
        return Inject(plan, optional)

    def _faults(self, raw: Mapping[str, Any], at: At) -> list[FaultSpec]:
        if "drill" in raw:
            return [self._fault(raw, at)]
        found = []
        for number, one in enumerate(self._reader.tables_of(raw, at, "faults")):
            where = (*at, "faults", number)
            self._reader.known(one, where, FAULT_KEYS, "A fault")
            found.append(self._fault(one, where))
        if not found:
            raise self._reader.wrong((*at, "faults"), "There is no fault in faults.")
        return found

    def _fault(self, raw: Mapping[str, Any], at: At) -> FaultSpec:
        read = self._reader
        name = read.text(raw, at, "drill")
        try:
            kind = catalog.fault(name)
        except CockpitError as error:
            raise read.wrong((*at, "drill"), error.what, error.why, error.todo) from error
        given = read.settings(raw, at, "set")
        for key, value in given.items():
            try:
                parameter_values(kind, {key: value})
            except CockpitError as error:
                raise read.wrong((*at, "set", key), error.what, error.why) from error
        count = read.whole(raw, at, "count", 1) or 0
        if count < 1:
            raise read.wrong((*at, "count"), "count is 0.", "A drill hits 1 or more.")
        target = TargetSpec(
            read.text(raw, at, "target", "random"),
            count,
            read.texts(raw, at, "groups"),
            read.truth(raw, at, "allow_head"),
        )
        return FaultSpec(name, given, target)

    def _bounds(self, raw: Mapping[str, Any], at: At, plan: DrillPlan) -> DrillPlan:
        """The plan with its hypothesis and limits from these keys."""
        read = self._reader
        during = {"probes": False, "during": True}
        hypothesis_now = tuple(
            spec
            for key, is_during in during.items()
            for spec in (
                self._probes(raw, at, key, ("during",) if is_during else ())
                if key in raw
                else tuple(p for p in plan.hypothesis if ("during" in p.when) is is_during)
            )
        )
        limit_s = read.number(raw, at, "timeout_s", plan.timeouts.recover_s)
        try:
            limits = checked_blast_radius(raw.get("max_pods"), raw.get("max_share"))
        except UsageError as error:
            key = "max_pods" if error.what.startswith("max_pods") else "max_share"
            raise read.wrong((*at, key), error.what, error.why) from error
        read.truth(raw, at, "optional")
        return replace(
            plan,
            hypothesis=hypothesis_now,
            blast_radius=limits.over(plan.blast_radius),
            abort=self._probes(raw, at, "abort_unless") if "abort_unless" in raw else plan.abort,
            recover_within_s=read.number(raw, at, "recover_within_s", plan.recover_within_s),
            max_steps_lost=read.whole(raw, at, "max_steps_lost", plan.max_steps_lost),
            max_time_lost_s=read.number(raw, at, "max_time_lost_s", plan.max_time_lost_s),
            settle_s=read.number(raw, at, "settle_s", plan.settle_s) or 0.0,
            timeouts=replace(plan.timeouts, recover_s=limit_s or Timeouts().recover_s),
        )

    def _probes(
        self, raw: Mapping[str, Any], at: At, key: str, when: tuple[When, ...] = ()
    ) -> tuple[ProbeSpec, ...]:
        found = []
        for text in self._reader.texts(raw, at, key):
            try:
                found.append(hypothesis.probe(text, when))
            except CockpitError as error:
                raise self._reader.wrong((*at, key), error.what, error.why, error.todo) from error
        return tuple(found)


def _number(at: At) -> int:
    return int(at[1]) + 1


def _called(doing: Doing) -> str:
    """A step without a name is called by what it does."""
    match doing:
        case Launch():
            return f"launch {doing.job}"
        case Wait():
            return f"wait {in_seconds(doing.seconds)}"
        case Expect():
            return "expect " + ", ".join(hypothesis.name_of(probe) for probe in doing.probes)
        case Scale():
            return f"scale {doing.group} to {doing.to}"
        case Inject():
            return doing.plan.name
