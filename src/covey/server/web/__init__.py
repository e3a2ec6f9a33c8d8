"""HTTP and TLS: listening, connections, who is let in, how requests become events and answers come
back. The addresses and their handlers are in `covey.server.api`."""
