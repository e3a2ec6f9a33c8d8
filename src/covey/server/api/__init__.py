"""What people and pilots can ask of a server, address by address, and the description of it all.
How requests arrive is in `covey.server.web`, how much one owner may have in `covey.server.limits`.
"""
