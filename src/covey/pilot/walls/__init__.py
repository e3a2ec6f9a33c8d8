"""What keeps a task confined: sandboxes and namespaces, limits of memory, processors and disk."""
