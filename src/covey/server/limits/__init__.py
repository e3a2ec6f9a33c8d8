"""What the server has only so much of, and what must be there before something is accepted: shares
of owners, uploads, slow questions, and how long old bags are kept."""
