"""Function calls: the records that travel, and the worker process that a slot keeps for them. What
the worker itself does is in `covey.worker`."""
