`--config env:NAME` of every daemon takes the configuration from an environment variable; `GET /config` says where it comes from.
