"""Textual's headless mode, fast and deterministic, for every test that drives an app.

- Textual waits for idle by sleeping until the process uses little CPU time: 40 ms a key at least,
  2 s at most on a busy machine. Here idle means that nothing is left to do: the event loop has no
  callback ready to run, and the screen has nothing to lay out. Other threads and timers are not
  waited for: a test that needs what they do waits for the result (`Seen.until`).
- A message of the app stays until the test ends: a test that is stalled for longer than the few
  seconds that it is shown to a person would not see it.
- Textual renders each update of a headless app and then drops it. Here the screen is rendered
  when a test reads it: `Seen.text`, a snapshot, and the end of each test.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import textual.app
import textual.pilot
from rich.console import RenderableType
from textual._compositor import Compositor
from textual._context import active_app, visible_screen_stack
from textual.notifications import Notification
from textual.screen import Screen

SHOWN_S = 3_600.0
"""How long a message of the app is shown."""
MAX_TURNS = 10_000
"""Turns of the event loop after which an app that is never idle is taken for idle."""

textuals_render_update = Compositor.render_update


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textual.app, "wait_for_idle", wait_for_idle)
    monkeypatch.setattr(textual.pilot, "wait_for_idle", wait_for_idle)
    monkeypatch.setattr(Compositor, "render_update", render_update)
    monkeypatch.setattr(Notification, "time_left", property(lambda message: SHOWN_S))


async def wait_for_idle(min_sleep: float = 0, max_sleep: float = 1) -> None:
    """Return once no callback of the event loop is ready and the screen is laid out.

    The parameters are those of the function that this replaces.
    """
    loop: Any = asyncio.get_running_loop()
    app = active_app.get(None)
    for _ in range(MAX_TURNS):
        await asyncio.sleep(0)
        if loop._ready:
            continue
        if app is None or not app._screen_stack or app._batch_count:
            return
        if app._resize_timer is not None:
            app._check_resize()  # the effect of that timer after 8 ms
        elif _needs_update(app.screen):
            app.screen._on_timer_update()  # the effect of the screen's timer within 16 ms
        else:
            return


def render_update(
    self: Compositor,
    full: bool = False,
    screen_stack: list[Screen[Any]] | None = None,
    simplify: bool = False,
) -> RenderableType | None:
    """Render for a screenshot (`full`); else only note which screens are below a dialog."""
    if full:
        return textuals_render_update(self, full, screen_stack, simplify)
    visible_screen_stack.set([] if screen_stack is None else screen_stack)
    self._dirty_regions.clear()
    return None


def _needs_update(screen: Screen[Any]) -> bool:
    return bool(
        screen._layout_required
        or screen._scroll_required
        or screen._repaint_required
        or screen._recompose_required
        or screen._dirty_widgets
        or screen._callbacks
    )
