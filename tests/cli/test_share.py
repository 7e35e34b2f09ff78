"""`cockpit share`: the report and the replay of a recording in one file."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

import pytest

from cockpit.cli.main import main
from cockpit.config import paths
from cockpit.recorder.reading.library import Library
from tests.recorder.test_recorder import record, script
from tests.tui.simulated import RUN


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)
    path = Library(paths.state_dir()).path_of(RUN)
    record(path, script(120))
    return path


@pytest.mark.usefixtures("path")
def test_replay_shows_each_view_from_the_beginning_to_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["share", "digits", "--frames", "2", "--size", "80x24", "--views", "overview,ranks"]
    assert main(argv) == 0
    name = f"digits-{RUN}-replay.html"
    assert f"Wrote {name}" in capsys.readouterr().out
    page = Path(name).read_text()
    packed = re.search(r'id="replay-data">([^<]*)<', page)
    assert packed is not None
    found = json.loads(zlib.decompress(base64.b64decode(packed[1])))

    def shown(frame: int, view: int) -> str:
        lines = [found["lines"][number] for number in found["frames"][frame][view]]
        assert {sum(cells for _, _, cells in line) for line in lines} == {80}
        return "\n".join("".join(text for text, _, _ in line) for line in lines)

    assert found["views"] == ["Overview", "Ranks"]
    assert len(found["frames"]) == len(found["times"]) == 2 + 3, "one after each marker too"
    assert "08:01:59" in shown(-1, 0)
    assert "attempt 2" in shown(-1, 0)
    assert "SAMPLES/S" in shown(-1, 1)
    assert "Starting" not in shown(0, 0)
    texts = [text for _, text in found["markers"]]
    assert any(text.startswith("drill: pod-kill") for text in texts)
    assert "<h1>Run digits</h1>" in page


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("kind", ["cast", "svg"])
def test_film_shows_the_views_one_after_the_other(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["share", "digits", "-o", kind, "--frames", "4", "--size", "80x24", "--seconds", "8"]
    assert main([*argv, "--views", "overview,ranks"]) == 0
    name = f"digits-{RUN}-replay.{kind}"
    assert f"Wrote {name}" in capsys.readouterr().out
    text = Path(name).read_text()
    if kind == "svg":
        assert "SAMPLES/S" in text
        assert "animation:film 8s" in text
        return
    header, *events = map(json.loads, text.splitlines())
    assert (header["width"], header["height"]) == (80, 24)
    first, last = events[0], events[-2]
    assert "SAMPLES/S" not in first[2]
    assert any("SAMPLES/S" in event[2] for event in events if event[0] >= 4.0)
    assert (first[0], events[-1][0]) == (0.0, 8.0)
    assert "08:01:59" in last[2], "the last moment of the recording"


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("flags", "reported"),
    [
        (("--frames", "1"), "--frames must be from 2"),
        (("--size", "big"), "COLUMNSxLINES, such"),
        (("--seconds", "0"), "--seconds from 1 to 3600"),
        (("--views", "overview,nothing"), "There is no view 'nothing'"),
    ],
)
def test_wrong_flags_are_refused(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], reported: str
) -> None:
    assert main(["share", "digits", *flags]) == 2
    assert reported in capsys.readouterr().err
