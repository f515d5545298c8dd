svc-broker reads its database in a thread: with a million queued messages too, `/livez` and SIGTERM are answered while it starts.
`open_journal` is asynchronous and takes what makes the broker; a disk that gives nothing ends the start after `startTimeout`.
