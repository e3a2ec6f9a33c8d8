"""Files known by the SHA-256 of their content, and who holds which of them."""
