The chart's value `spire.x509SvidTtl` is the life of the X.509-SVIDs of service accounts.
