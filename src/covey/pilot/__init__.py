"""The pilot, which runs on other people's machines: standard library only, Python 3.6 and later.

`protocol/pilot_state.py` decides; the other modules carry out. `protocol/messages.py` is shared
with the server.
"""
