"""The chart ``svc-core`` on a cluster: its values, the release of Helm that is there, and the runs of Helm."""
