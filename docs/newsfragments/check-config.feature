`--check-config` of proxy, broker and authority lists what the start would open and tests that it can be: ports, sockets, database,
issuer, files. `--check-config --offline` judges the file alone, as `--check-config` did; units should use that.
