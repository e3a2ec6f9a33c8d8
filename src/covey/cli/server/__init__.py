"""Commands for who runs a server: serve, tokens, settings, doctor."""
