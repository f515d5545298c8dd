"""What is installed on a cluster: the values of the chart ``svc-core``."""
