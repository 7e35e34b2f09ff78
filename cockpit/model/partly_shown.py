"""Objects with a secret in them, which a log or a traceback may show."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct


class PartlyShown(Struct, frozen=True):
    """`repr` shows the fields of SHOWN only; so do Textual's tracebacks with local variables."""

    SHOWN: ClassVar[tuple[str, ...]]

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.SHOWN]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({fields})"
