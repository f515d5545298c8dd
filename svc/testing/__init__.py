"""
Public test doubles: an authority that can build every wrong certificate, and stand-ins for what a workload talks to.

Owns what tests of our own and of embedding applications need. Nothing outside of tests imports it; it does no network
I/O and takes the time as an argument.
"""
