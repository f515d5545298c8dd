"""
What every daemon of this project shares: options, start and end, clock, log, pages for metrics and operators.

Nothing is imported here. Does not depend on what a daemon serves.
"""
