"""``twistd svc-authority``: options, configuration, and the asyncio reactor, which gRPC needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.application.service import IService

from svc.authority.config import AuthoritySettings, load_settings
from svc.errors import SvcError
from svc.process.checking import Check
from svc.process.clock import utc_now
from svc.process.on_asyncio import AsyncioOptions, require_asyncio
from svc.process.options import config_parameters, exit_with

if TYPE_CHECKING:
    from svc.authority.service import Authority


class Options(AsyncioOptions):
    """The options of ``twistd svc-authority``."""

    longdesc = "Serves an ephemeral SPIFFE trust domain and issues post-quantum leaves; see docs/authority.md."
    optParameters = [
        *config_parameters("/etc/svc/authority.yaml"),
        ["write-keys", None, None, "Make new keys of the issuer, write them to this new file (0600), and exit."],
    ]

    def read(self, path: str) -> AuthoritySettings:
        return load_settings(path)

    def postOptions(self) -> None:
        """With ``--write-keys`` exit behind the validation."""
        super().postOptions()
        if self["write-keys"] is not None:
            _write_keys(self["settings"], self["write-keys"])
            sys.exit(0)

    def checks(self, settings: AuthoritySettings) -> Iterable[Check]:
        from svc.authority.opened import opened

        return opened(settings)


class KeysNotWritten(SvcError):
    """new keys cannot be written to {path}: {what}"""

    reason = "keys_not_written"
    hint = "name a file that does not exist in a folder that you may write; an existing one is never replaced"


def _write_keys(settings: AuthoritySettings, path: str) -> None:
    from svc.authority.service import new_issuer_keys

    if settings.pqIssuer is None:
        exit_with(KeysNotWritten(path=path, what="the configuration has no pqIssuer"), sys.stderr)
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(new_issuer_keys(settings, utc_now(), os.urandom))
    except OSError as error:
        exit_with(KeysNotWritten(path=path, what=error.strerror or str(error)), sys.stderr)


def makeService(options: Options) -> IService:
    """Build the authority for ``twistd``; nothing is opened yet."""
    from svc.process.daemon import daemon_tree

    return daemon_tree(options, "authority", partial(_authority, config_path=options["config"]))


def _authority(settings: AuthoritySettings, reactor: Any, *given: Any, config_path: str) -> Authority:
    require_asyncio(reactor, "svc-authority")
    from svc.authority.service import Authority

    return Authority(settings, reactor, *given, config_path=config_path)
