"""The command ``svc install``: ``modes`` checks the flags, ``rollout`` brings a release onto a cluster."""
