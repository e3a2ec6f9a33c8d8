"""Talking to a server over HTTP, and starting one where there is none."""
