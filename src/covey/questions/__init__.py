"""Questions of the HTTP side about core's live state. Each question is a small record that can be
encoded, with one method that answers it. Here belongs what reads the state; not what changes it
(events do), and nothing that waits, reads a clock or knows HTTP."""
