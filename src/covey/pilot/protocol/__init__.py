"""The pilot's half of the protocol: messages, their limits, what the pilot decides, and the threads
that carry requests. Nothing here starts a task or touches a task's files."""
