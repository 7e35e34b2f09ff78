"""A text that is drawn again only when it has changed."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static


class Text(Static):
    """`show` replaces its text; it never parses markup."""

    def __init__(
        self, content: Content | str = "", *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(_content(content), markup=False, id=id, classes=classes)

    def show(self, content: Content | str) -> None:
        """Display `content`, with a new layout only if its number of lines has changed.

        A layout draws all of the screen again.
        """
        content = _content(content)
        before = self.content
        if isinstance(before, Content) and before.is_same(content):
            return
        self.update(content, layout=False)
        self.clear_cached_dimensions()
        height = self.styles.height
        if (height is None or height.is_auto) and self.is_on_screen:
            size = self.content_size
            if self.get_content_height(size, self.screen.size, size.width) != size.height:
                self.refresh(layout=True)


def _content(of: Content | str) -> Content:
    return Content(of) if isinstance(of, str) else of
