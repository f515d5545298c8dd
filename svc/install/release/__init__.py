"""
Releases: what a version consists of, who signed it, and the file in which it reaches a site without a network.

``document`` is ``svc-release.json``, ``signature`` its signature, ``keys`` the keys that are accepted, ``manifests``
what the release refers to, ``layout`` the entries of a package, ``headers`` those of its tar archive, ``package`` the
file: written, read at random and verified. Nothing here reaches a registry or a cluster.
"""
