"""The admission webhooks: their authorities, their configurations at the API server, and what answers reviews."""
