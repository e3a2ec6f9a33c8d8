"""A driver for covey that lives in a package of its own."""
