"""The table of results, for every kind of record: columns, queries, exports, and the parameters of
tasks."""
