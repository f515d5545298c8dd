"""``svc license``: the commands about license files."""
