`svc.embedding`: arguments have one spelling (`NotarySite.open(pq_issuer=…)`), durations are seconds or texts (`30`, `"30s"`), and an
argument that is not acceptable is named by `ArgumentInvalid`. `hint` of every error has its evidence filled in.
