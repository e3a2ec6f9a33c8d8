"""Files whose rows are parameters. Clients and the server read them with the same code."""
