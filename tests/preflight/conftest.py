"""Fixtures of the tests of preflight."""

from tests.training.object_store import s3, s3_server

__all__ = ["s3", "s3_server"]
