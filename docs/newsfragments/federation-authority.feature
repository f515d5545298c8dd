Two machines federate without Kubernetes by one file and one fingerprint read aloud: `svc federation export`, `import` and `info` with
`--authority`, and `federation.socket` of `svc-authority` ([federation](docs/federation.md#two-machines)).
