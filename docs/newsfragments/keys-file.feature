`svc-authority` beside SPIRE takes the keys of its issuer from a file that it never writes, such as a Secret (`keysFile`); `--write-keys` makes one.
