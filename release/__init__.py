"""``bin/release``: makes the artifacts of a release from a commit, checks them, and says what would be tagged."""
