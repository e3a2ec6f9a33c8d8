"""What the server's HTTP side asks about core's live state. Each question is a small record that
can travel, with the one method that answers it. Here belongs what reads the state for others; not
what changes it (events do), and nothing that waits, reads a clock or knows HTTP."""
