The proxy shows metrics, named health conditions and log records of schema `svc.log/1`; see `docs/telemetry.md`.
