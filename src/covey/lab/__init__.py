"""Experiments: policies in simulated worlds, before anything real is run. What a test of covey
itself needs is in `covey.sim`."""
