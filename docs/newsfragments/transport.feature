TLS 1.3 endpoints for Twisted that build a protocol for verified SPIFFE peers only, with eager transports and limits.
