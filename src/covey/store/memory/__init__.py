"""The record in plain dictionaries, for the simulator and for tests."""
