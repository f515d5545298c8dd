"""
The central issuer: statements of injected pods, with facts from the API server alone.

``decision`` says which pod a token proves and which facts a statement has; ``signing`` has the manager's keys,
``issuing`` asks the API server and signs, and ``endpoint`` is the path at ``controlPlaneAddr``.
"""
