The systemd units are files of the package (`svc/data/units`); `svc-proxy@.service` runs several proxies on one machine.
