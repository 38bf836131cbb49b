"""Second opinions: each engine checks the answers of the other."""
