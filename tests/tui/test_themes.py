from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from textual.app import App
from textual.theme import BUILTIN_THEMES

from cockpit.config import bundled
from cockpit.config.theme_files import SEMANTIC_COLORS, read_theme, theme_named, themes
from cockpit.model.error import CockpitError, UsageError
from cockpit.tui.theme import Palette, load_themes, semantic_variables, textual_theme

BUNDLED = {"ansi-16", "cockpit-dark", "cockpit-light", "high-contrast"}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "cockpit" / "themes"
    folder.mkdir(parents=True)
    return folder


def test_the_bundled_themes_are_found(own: Path) -> None:
    assert {theme.name for theme in themes()} == BUNDLED
    assert not any(theme.own for theme in themes())


def test_a_theme_of_the_user_hides_the_bundled_one_of_its_name(own: Path) -> None:
    (own / "cockpit-dark.toml").write_text('[colors]\nprimary = "#112233"\n')
    found = theme_named("cockpit-dark")
    assert (found.own, found.path.parent) == (True, own)
    assert textual_theme(found).primary == "#112233"


def test_a_wheel_brings_its_themes_inside_the_package(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "cockpit"
    (package / "themes").mkdir(parents=True)
    (package / "themes" / "paper.toml").write_text('[colors]\nprimary = "#112233"\n')
    (package / "manifests").mkdir()
    monkeypatch.setattr(bundled, "PACKAGE", package)
    assert [theme.name for theme in themes()] == ["paper"]


def test_an_unknown_name_is_reported_with_the_known_ones(own: Path) -> None:
    with pytest.raises(UsageError, match="cockpit-dark"):
        theme_named("solarized")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("= broken", "Invalid"),
        ("[colors]\n", "needs primary"),
        ('[colors]\nprimary = "blueish"\n', "neither #rrggbb"),
        ('[colors]\nprimary = "#112233"\nlila = "#112233"\n', "unknown color 'lila'"),
        ("[colors]\nprimary = 3\n", "must be a string"),
        ("colors = 3\n", "must be a table"),
        ('dark = "yes"\n[colors]\nprimary = "#112233"\n', "true or false"),
        ("[colours]\n", "unknown key 'colours'"),
    ],
)
def test_a_broken_theme_is_reported_with_its_file_and_the_reason(
    own: Path, text: str, why: str
) -> None:
    path = own / "mine.toml"
    path.write_text(text)
    with pytest.raises(CockpitError) as caught:
        read_theme(theme_named("mine"))
    assert str(path) in caught.value.why
    assert why in caught.value.why


def test_a_theme_file_that_cannot_be_read_is_reported(own: Path) -> None:
    (own / "mine.toml").mkdir()
    with pytest.raises(CockpitError, match="directory"):
        read_theme(theme_named("mine"))


def test_a_broken_theme_does_not_take_the_others_with_it(own: Path) -> None:
    (own / "mine.toml").write_text("broken")
    good, bad = load_themes()
    assert {theme.name for theme in good} == BUNDLED
    assert [error.what for error in bad] == ["The theme mine cannot be used"]


def test_themes_are_listed_without_textual() -> None:
    code = (
        "import sys, cockpit.config.theme_files as t; t.themes(); "
        "sys.exit(any(m.split('.')[0] in ('textual', 'rich') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", sorted(BUNDLED))
async def test_every_bundled_theme_colours_an_app(name: str, own: Path) -> None:
    class Themed(App[None]):
        def on_mount(self) -> None:
            self.register_theme(textual_theme(theme_named(name)))
            self.theme = name

    app = Themed()
    async with app.run_test():
        palette = Palette.of(app)
        colors = {name: palette.style(name).color for name in SEMANTIC_COLORS}
        assert None not in colors.values()
        distinct = ("good", "warning", "bad", "muted", "accent")
        assert len({colors[name] for name in distinct}) == len(distinct)


@pytest.mark.parametrize("name", sorted(BUILTIN_THEMES))
def test_textuals_own_themes_get_the_semantic_colours(name: str) -> None:
    assert semantic_variables(BUILTIN_THEMES[name]).keys() >= SEMANTIC_COLORS


async def test_a_palette_parses_styles() -> None:
    app: App[None] = App()
    async with app.run_test():
        palette = Palette.of(app)
        style = palette.style("bold reverse bad")
        assert style.bold
        assert style.reverse
        assert style.color == palette.style("bad").color
        with pytest.raises(KeyError, match="lila"):
            palette.style("lila")
