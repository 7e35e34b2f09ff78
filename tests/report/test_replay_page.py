"""The replay in a report: one script that the policy names, and text that stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest

from cockpit.report.html import html
from cockpit.report.replay import Frames, Look, script
from cockpit.report.run_report import report
from tests.report.runs import EVIL, RUN, rich
from tests.report.test_html import Page

HOSTILE = "</script><img src=x onerror=alert(1)>"


def frames() -> Frames:
    return Frames(
        10,
        ["Overview", "Ranks"],
        ["0.0 s of 9.0 s", "9.0 s of 9.0 s"],
        [[[0, 1], [1, 1]], [[2, 1], [0, 1]]],
        [(("begin", 0, 5),), ((HOSTILE, 1, 37),), (("en", 0, 2), ("d", 1, 1))],
        [Look("#ffffff"), Look("#00ff00", bold=True)],
        [(1, f"drill: {HOSTILE}")],
    )


@pytest.fixture(scope="module")
def page() -> str:
    store = rich(EVIL)
    return html(report(store, store.runs[RUN], read_from=EVIL), frames())


def test_only_the_script_of_the_replay_may_run(page: str) -> None:
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert f"script-src &#x27;sha256-{digest}&#x27;" in policy[1]
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert re.findall(r"<script>(.*?)</script>", page, re.DOTALL) == [script()]
    assert "unsafe-eval" not in page
    assert "innerHTML" not in script()


def test_page_loads_nothing_and_holds_text_from_elsewhere_as_text(page: str) -> None:
    parsed = Page(page.replace('<input type="range"', '<meta type="range"'))
    assert parsed.tags.count("script") == 2
    assert "img" not in parsed.tags
    assert not [value for name, value in parsed.attributes if name == "src"]
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert HOSTILE not in page


def test_frames_are_in_the_page_as_they_were_made(page: str) -> None:
    packed = re.search(r'id="replay-data">([A-Za-z0-9+/=]*)<', page)
    assert packed is not None
    found = json.loads(zlib.decompress(base64.b64decode(packed[1])))
    assert found["lines"][1] == [[HOSTILE, 1, 37]]
    assert found["frames"] == frames().frames
    assert "#screen .s1 { color: #00ff00; font-weight: bold }" in page


def test_report_without_a_replay_has_no_script() -> None:
    store = rich()
    assert "<script" not in html(report(store, store.runs[RUN]))


@pytest.mark.nightly
def test_script_plays_frames_and_shows_views_and_markers(page: str, tmp_path: Path) -> None:
    """On a small DOM in Node."""
    node = shutil.which("node")
    assert node is not None, "this test needs Node 18 or later"
    (file := tmp_path / "page.html").write_text(page)
    dom = Path(__file__).with_name("replay_dom.cjs")
    done = subprocess.run([node, dom, file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["hidden"] is False
    assert seen["first"] == ["begin", HOSTILE]
    assert seen["last"] == ["end", HOSTILE]
    assert (seen["playing"], seen["over"]) == ("Pause", "Play")
    assert seen["views"] == ["Overview", "Ranks"]
    assert seen["second"] == ["begin", HOSTILE]
    assert seen["markers"] == [f"drill: {HOSTILE}"]
    assert seen["marked"] == "9.0 s of 9.0 s"
    assert seen["home"] == "0"


@pytest.mark.nightly
def test_browser_runs_the_script_under_the_policy_of_the_page(page: str, tmp_path: Path) -> None:
    """In headless Chromium: the hash in the policy admits the script, and text stays text."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    assert browser is not None, "this test needs Chromium"
    (file := tmp_path / "page.html").write_text(page)
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=8000"]
    done = subprocess.run(
        [*command, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert '<output id="time">0.0 s of 9.0 s</output>' in done.stdout
    assert '<div><span class="s0" style="width: 5ch;">begin</span></div>' in done.stdout
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;</span>" in done.stdout
