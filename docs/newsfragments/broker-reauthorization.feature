svc-broker closes a client whose SVID has ended or would now be refused, and its readiness follows its own credentials.
