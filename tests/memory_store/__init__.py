"""The record in plain dictionaries, for tests and the simulator. No user runs it. The contract
suite holds it and SQLite to the same answers. Helpers of single tests do not belong here."""
