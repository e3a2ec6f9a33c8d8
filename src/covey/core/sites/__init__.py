"""Where pilots are started, and how many: sites, demand, the overlay, turns between owners. What
runs on them then is decided in `covey.core.match`."""
