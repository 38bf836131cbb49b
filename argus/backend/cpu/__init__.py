"""The host as a target: emitted text of any target runs here, a block's lanes as fibers of one thread."""
