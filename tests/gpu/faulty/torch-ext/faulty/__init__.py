"""Operators that go wrong on purpose."""

from ._ops import ops

__all__ = ["ops"]
