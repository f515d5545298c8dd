bin/benchmark measures the HTTP proxy against haproxy and twisted.web in one run; docs/performance.md tells what it found.
