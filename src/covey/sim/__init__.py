"""A seeded world of virtual machines around the real engine, core and pilot brain: it breaks
everything that can break, and looks from outside whether covey keeps its promises."""
