"""Commands for people who run a server: serve, stop, token, config, doctor."""
