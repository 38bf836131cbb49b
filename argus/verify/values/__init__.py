"""What data arrives and what is computed from it: tags, terms and specifications."""
