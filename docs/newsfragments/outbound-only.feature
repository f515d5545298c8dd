A proxy with outbound listeners alone opens no notary database, needs no post-quantum issuer, and shows neither as a condition nor
as a metric.
