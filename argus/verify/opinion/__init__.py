"""A second opinion: what one engine answered is asked of the other."""
