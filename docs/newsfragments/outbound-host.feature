`host` at an outbound listener replaces Host, for peers with virtual hosts.
