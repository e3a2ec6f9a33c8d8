"""What holds a task inside: sandboxes and namespaces, limits of memory, processors and disk."""
