"""
The process ``svc-registrar``: it keeps the registration entries of a SPIRE server as its configuration says.

Beside the server of a cluster it makes the first entries, which let all others be made. Nothing imports it.
"""
