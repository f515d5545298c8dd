"""Pass-through: packets of a client and its broker, with what the proxy reads of them."""
