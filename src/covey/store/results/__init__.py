"""The table of results, whatever keeps it: columns, questions, exports, and the parameters of
tasks."""
