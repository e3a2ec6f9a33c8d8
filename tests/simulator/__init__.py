"""A seeded world of virtual machines around the real engine, core and pilot state. It breaks
everything that can break, and checks from outside whether covey keeps its promises. `world` puts
the parts together. No real network, clock, database or site belongs here."""
