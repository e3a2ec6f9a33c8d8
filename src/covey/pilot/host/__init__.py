"""What a pilot finds out about the machine that it runs on, checks there, and publishes as tags."""
