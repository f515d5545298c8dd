The systemd units are of `Type=notify`: a start is over when the daemon serves.
