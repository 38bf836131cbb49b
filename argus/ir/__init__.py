"""The tile IR: typed expressions, statements, memory objects, and one access relation per operation."""
