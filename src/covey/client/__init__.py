"""The client: HTTP requests to a server, files up and down, and starting an embedded server."""
