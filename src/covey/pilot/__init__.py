"""What runs on other people's machines: standard library only, Python 3.6 and later.

`brain.py` decides, the rest does. `messages.py` is shared with the server.
"""
