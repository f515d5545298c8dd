"""
What every daemon of this project shares: options, start and end, clock, log, pages for metrics and operators.

Nothing is imported here. Must not know what a daemon serves.
"""
