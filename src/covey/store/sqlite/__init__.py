"""The record in one SQLite file: its tables, writing, reading, upkeep and checks. What is the same
for every kind of record, such as queries for results, is in `covey.store.results`."""
