svc-broker refuses identities and certificates on deny lists (`policy.files`, the format of the proxy's), at CONNECT and on open connections when a file changes.
