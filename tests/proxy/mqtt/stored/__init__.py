"""Store-and-forward."""
