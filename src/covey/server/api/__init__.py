"""Handlers of all addresses, for people and for pilots, and the OpenAPI description. How requests
arrive is in `covey.server.web`; how much one owner may have, in `covey.server.limits`."""
