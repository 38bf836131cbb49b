"""The host as a target. It runs the emitted text of any target; the lanes of a block are fibers of one thread."""
