"""The documentation; a package only so that ``python -m docs.generator`` finds the generator."""
