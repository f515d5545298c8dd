"""Runs the tests for ``bin/test``: which modules, in how many processes, and what is printed."""
