"""Files by the SHA-256 of their content, and which owner holds which file."""
