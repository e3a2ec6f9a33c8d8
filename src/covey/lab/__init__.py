"""Experiments: policies in simulated worlds, before anything real is run. What a test of covey
itself needs is not here: faults and checkers are in the repository under `tests/simulator`."""
