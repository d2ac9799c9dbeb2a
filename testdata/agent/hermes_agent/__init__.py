"""A stand-in for Hermes: its process shape, not its intelligence."""
