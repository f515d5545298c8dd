`svc curl mqtt://HOST:PORT` and `mqtts://HOST:PORT` print workload statements and receipts as they are published at a broker, with MQTT 5.0 or
3.1.1, until the connection ends or is interrupted; `--verify` verifies them. `mqtts://` uses the roots of the system and the host name. See docs/cli.md.
