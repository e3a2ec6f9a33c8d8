"""Commands about bags: run, submit, append, list, watch, retry, pause, cancel, purge."""
