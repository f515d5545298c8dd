"""
When to go on: pauses between attempts to reach a server, and how long one connection may keep the reactor.
"""
