Every series of the proxy is on the page from the start and every label has a closed, documented set of values; [telemetry](docs/telemetry.md)
names the event behind each.
