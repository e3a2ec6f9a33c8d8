"""The record in one SQLite file: its tables, how they are written, read, kept small and checked.
Questions about results that are the same for every record are in `covey.store.results`."""
