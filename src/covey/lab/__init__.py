"""Experiments: policies tried out in simulated worlds before anything real is run."""
