"""Every kind of memory, for all tests here."""

from __future__ import annotations

from tests.unit.memory.kit import memory

__all__ = ["memory"]
