"""HTTP and TLS: where the server listens, whom it lets in, how requests become events and answers
come back. What is asked and answered is in `covey.server.api`."""
