"""AMD GPUs: the device header and the compiler that turns emitted text into a code object, with no driver."""
