"""The sites of a world: hosts, queues, and the jobs that core asks for. What runs there, and the
server, are in the package above."""
