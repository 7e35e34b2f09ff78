from __future__ import annotations

import pytest

from training.settings import boolean_variable

NAME = "COCKPIT_RECOVERY_SPARES"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", False),
        ("false", False),
        ("No ", False),
        ("off", False),
        ("1", True),
        ("YES", True),
        ("", True),
    ],
)
def test_boolean_variable_is_parsed(
    text: str, value: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAME, text)
    assert boolean_variable(NAME, default=True) is value


@pytest.mark.parametrize("text", ["off?", "enabled", "2"])
def test_unknown_boolean_variable_is_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, text)
    with pytest.raises(ValueError, match=f"{NAME} is '{text}'".replace("?", r"\?")):
        boolean_variable(NAME, default=True)
