"""AMD GPUs: the device header, the compiler of emitted text, and the HIP runtime, which loads and launches."""
