"""A seeded world of virtual machines around the real engine, core and pilot state: it breaks
everything that can break, and checks from outside whether covey keeps its promises."""
