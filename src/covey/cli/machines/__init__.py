"""Commands about where tasks run: hosts, pilots and sites."""
