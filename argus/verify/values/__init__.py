"""Tags, terms and specifications: the data that arrives at each statement, and the values computed from it."""
