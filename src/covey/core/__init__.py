"""Every decision covey makes, and nothing else: no I/O, no clock, no threads.

Start with `scheduler.py`.
"""
