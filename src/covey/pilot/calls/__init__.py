"""Function calls as a slot sees them: the records that travel, and the worker process that a slot
keeps. The code that runs inside the worker is in `covey.worker`."""
