"""To be described by its own module."""
