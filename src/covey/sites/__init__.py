"""Starts the pilots that core asks for, and reports what happens to them. `driver` is the interface
of all drivers; each kind of site has its module in `drivers`. How many pilots are started, and
where, is decided in `covey.core.sites`."""
