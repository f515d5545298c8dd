`forwarded: rfc7239` at an inbound listener adds the field `Forwarded` (RFC 7239) with the client's address, which may come from a PROXY header.
