bin/bench measures the HTTP proxy against haproxy, caddy and twisted.web in one run and says where the time goes; docs/benchmarks.md tells what it found.
