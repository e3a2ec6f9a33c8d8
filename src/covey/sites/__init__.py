"""Where pilots are started: one module per kind of site."""
