"""Carries out what core decides about sites: it starts pilots there, and tells what became of them.
The interface of all drivers is `driver`; each kind of site has its module in `drivers`. How many
pilots are started, and where, is decided in `covey.core.sites`."""
