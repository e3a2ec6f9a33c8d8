"""Judges of a world: a ledger of what really happened, and what must be true of it. They see
hosts, messages and the record, and know nothing of how core decides (only `explain_check` reads its
state). Nothing here changes what happens."""
