"""The command ``svc check``: ``local`` reads the facts of this machine, ``rendering`` writes text, ``run`` prints."""
