"""Worlds in which planted bugs are seen; written by `python -m tests.simulation.find`."""

FOUND: dict[str, int] = {}
