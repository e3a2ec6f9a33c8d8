"""What a world has, drawn from its seed: hosts, sites, bags, policies, and what breaks when. All of
it is fixed before the world starts, or depends on the seed alone. What runs in the world, and keeps
state, is in `machines`."""
