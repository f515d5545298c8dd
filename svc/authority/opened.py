"""What an authority opens at its start, for ``--check-config``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from svc.authority.config import AuthoritySettings
from svc.authority.federation import read_foreign, read_foreign_pq
from svc.authority.keystore import ReadOnlyKeys
from svc.process.checking import Check, check_new_socket, check_pages, check_port, check_service, check_written_file
from svc.process.clock import utc_now
from svc.workload.files import refuse_open_folder


def opened(settings: AuthoritySettings) -> Iterator[Check]:
    """A check of each thing, in the order in which they are opened."""
    pq = settings.pqIssuer
    yield from check_pages(settings)
    yield from _folders(settings)
    if settings.dataDir is not None:
        yield Check(f"folder of keys {settings.dataDir}", partial(_check_data_dir, settings.dataDir))
    if settings.keysFile is not None:
        keys = ReadOnlyKeys(settings.keysFile, settings.trustDomain)
        yield Check(f"keys in {settings.keysFile}", lambda: keys.open(utc_now()))
    for federated in settings.federatesWith:
        for path, read in ((federated.bundleFile, read_foreign), (federated.pqBundleFile, read_foreign_pq)):
            if path is not None:
                yield Check(f"roots of {federated.trustDomain} in {path}", partial(read, path, federated.trustDomain))
    yield _written("archive of roots", "socket or pqIssuer.bundleFile", settings.archive_path)
    if pq is not None:
        yield _written("post-quantum roots", "pqIssuer.bundleFile", settings.pq_bundle_path)
    if settings.bundleFile is not None:
        yield _written("SPIFFE bundle", "bundleFile", settings.bundleFile)
    if settings.workloadApi is not None:
        yield check_service("Workload API", "workloadApi", f"unix://{settings.workloadApi}")
    if settings.socket is not None:
        yield _socket("Workload API", "socket", settings.socket)
    if pq is not None and pq.socket is not None:
        yield _socket("post-quantum issuer", "pqIssuer.socket", pq.socket)
    if settings.federation is not None:
        yield _socket("federation", "federation.socket", settings.federation.socket)
    if pq is not None and pq.listen is not None:
        yield check_port("post-quantum issuer", "pqIssuer.listen", pq.listen)


def _check_data_dir(folder: str) -> None:
    refuse_open_folder(os.path.dirname(os.path.abspath(folder)))
    made = os.path.join(folder, "keys") if os.path.isdir(folder) else folder
    check_written_file("folder of keys", "dataDir", made).test()


def _folders(settings: AuthoritySettings) -> Iterator[Check]:
    """Check that no other user can replace a socket in its folder; one that is absent is made."""
    for folder in sorted({os.path.dirname(path) for path in settings.socket_paths}):
        if os.path.isdir(folder):
            yield Check(f"folder {folder}", partial(refuse_open_folder, folder))


def _written(what: str, key: str, path: str) -> Check:
    folder = os.path.dirname(path)
    return check_written_file(what, key, path) if os.path.isdir(folder) else _folder(what, key, folder)


def _socket(what: str, key: str, path: str) -> Check:
    folder = os.path.dirname(path)
    return check_new_socket(what, key, path) if os.path.isdir(folder) else _folder(what, key, folder)


def _folder(what: str, key: str, folder: str) -> Check:
    return check_written_file(f"folder of {what}", key, folder)
