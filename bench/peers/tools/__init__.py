"""One module for each tool. Each runs in the tool's own environment, as a process of its own."""
