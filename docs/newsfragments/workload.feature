`twistd svc-authority` serves an ephemeral SPIFFE trust domain on one machine (X.509-SVIDs, JWT-SVIDs, bundles, federation by
files) and issues post-quantum leaves, alone or beside a real SPIRE; `svc.workload.source` keeps the last good SVIDs and
bundles of any Workload API; see `docs/authority.md`.
