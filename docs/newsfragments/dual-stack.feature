A listen address, `metricsAddr` or `adminAddr` without a host (`:8443`) takes IPv6 and IPv4 connections; IPv4 clients, also in
PROXY headers, are logged and counted by their IPv4 address.
