"""Limits of the server: each owner's share of what is scarce, uploads, slow questions, what a
submission must bring, and how long old bags are kept."""
