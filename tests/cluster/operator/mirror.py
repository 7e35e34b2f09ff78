"""A cache of all objects of one kind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import httpx

from tests.cluster.operator.api import Api, ApiError, Object

log = logging.getLogger(__name__)

RETRY_S = 0.5
_TOLD = ("name", "namespace", "uid", "labels", "ownerReferences", "resourceVersion")

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, order=True)
class Key:
    namespace: str
    name: str

    @classmethod
    def of(cls, item: Object) -> Key:
        return cls(item["metadata"].get("namespace", ""), item["metadata"]["name"])

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def labelled(label: str) -> Callable[[Object], Key | None]:
    """The owner that a label names, in the object's own namespace."""

    def owner(item: Object) -> Key | None:
        name = item["metadata"].get("labels", {}).get(label)
        return Key(item["metadata"].get("namespace", ""), name) if name else None

    return owner


class Mirror(Generic[Item]):
    """List, then watch, for as long as it runs; after any trouble it lists again."""

    def __init__(
        self,
        api: Api,
        path: str,
        parse: Callable[[Object], Item],
        changed: Callable[[Object], None],
        *,
        owner: Callable[[Object], Key | None] = Key.of,
        selector: str = "",
    ) -> None:
        """`changed` is called with each object that was added, changed or deleted."""
        self._api = api
        self._path = path
        self._parse = parse
        self._changed = changed
        self._owner = owner
        self._selector = selector
        self._versions: dict[Key, int] = {}
        self._items: dict[Key, Item] = {}
        self._owned: dict[Key, dict[Key, Item]] = {}
        self._gone: dict[Key, Object] = {}
        self.filled = asyncio.Event()
        """Set once the first list is in."""

    def get(self, key: Key) -> Item | None:
        return self._items.get(key)

    def of(self, owner: Key) -> list[Item]:
        """Those of one owner, the oldest first."""
        return list(self._owned.get(owner, {}).values())

    def learn(self, item: Object) -> None:
        """Apply a response of the API server, without waiting for the watch."""
        self._keep(item)

    async def run(self) -> None:
        while True:
            try:
                version = await self._list()
                while True:
                    version = await self._watch(version)
            except ApiError as error:
                if error.status not in (404, 410):
                    log.warning("%s: %s", self._path, error)
            except (httpx.HTTPError, ValueError) as error:
                log.warning("%s: %r", self._path, error)
            await asyncio.sleep(RETRY_S)

    async def _list(self) -> str:
        selector = {"labelSelector": self._selector} if self._selector else {}
        answer = await self._api.get(self._path, **selector)
        items = {Key.of(item): item for item in answer["items"]}
        removed = [self._gone[key] for key in self._items.keys() - items.keys()]
        self.filled.set()
        self._all(removed, self._drop)
        self._all(items.values(), self._keep)
        version: str = answer["metadata"]["resourceVersion"]
        return version

    async def _watch(self, version: str) -> str:
        async for change in self._api.watch(self._path, version, self._selector):
            version = change.item["metadata"]["resourceVersion"]
            if change.kind == "BOOKMARK":
                continue
            self._all([change.item], self._drop if change.kind == "DELETED" else self._keep)
        return version

    def _all(self, items: Iterable[Object], note: Callable[[Object], bool]) -> None:
        for item in items:
            if note(item):
                self._changed(item)

    def _keep(self, item: Object) -> bool:
        """Whether it is news."""
        key, version = Key.of(item), int(item["metadata"]["resourceVersion"])
        if self._versions.get(key, 0) >= version:
            return False
        # Of deleted objects only this is kept, to bound the memory.
        slim = {name: item["metadata"][name] for name in _TOLD if name in item["metadata"]}
        self._versions[key], self._gone[key] = version, {"metadata": slim}
        self._items[key] = self._parse(item)
        if (owner := self._owner(item)) is not None:
            self._owned.setdefault(owner, {})[key] = self._items[key]
        return True

    def _drop(self, item: Object) -> bool:
        key = Key.of(item)
        # The version stays: a late answer about the object must not bring it back.
        self._versions[key] = int(item["metadata"]["resourceVersion"])
        for kept in (self._gone, self._items):
            kept.pop(key, None)
        if (owner := self._owner(item)) is not None:
            siblings = self._owned.get(owner, {})
            siblings.pop(key, None)
            if not siblings:
                self._owned.pop(owner, None)
        return True
