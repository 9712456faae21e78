"""Erasing sessions and people: completely, resumably, with a receipt (C20)."""
