"""Who may read ``/metrics``, and the TLS of it."""
