"""What a pilot finds out about its machine, checks there, and publishes as tags."""
