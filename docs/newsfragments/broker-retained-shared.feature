Identities share the last tenth of the retained messages of `svc-broker`, by number and octets; who has most is in the new event
`svc.broker.message.no_room` (`no_room` of a `ConnectionReporter`). The broker's database has a second version, which older releases do not open.
