"""The server's half of the protocol with pilots: who is let in, what is heard and believed, how
attempts end, what happens after a restart. What a pilot is sent is decided in `covey.core.match`.
"""
