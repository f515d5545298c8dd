"""
The benchmark of the proxy: our proxy and its peers, measured in turn in one run.

``bin/bench`` runs it; ``README.md`` describes what it measures. Nothing of the product imports it.
"""
