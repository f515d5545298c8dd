"""
The configuration file of the wrapper commands, ``~/.svc/config.yaml``: reading it, and changing it.

A change holds a lock and replaces the file as a whole, with mode 0600; who reads needs no lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from svc import naming
from svc.cli.errors import CliError, CommandFailed
from svc.compartments.config import Config, at_home
from svc.compartments.document import changed, read_config
from svc.folders import is_absent, make_folder
from svc.settings import ConfigInvalid, read_text
from svc.workload.files import write_atomically


class ConfigFile:
    """The file of one user."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.path = at_home(naming.DEFAULT_CONTEXTS, environ)

    def read(self) -> tuple[Config, list[str]]:
        """
        Read the file; one that is absent has no contexts.

        Returns:
            The configuration, and the keys that are not known.

        Raises:
            CommandFailed: for ConfigInvalid, with the defects behind the first one.
            ConfigUnreadable: it cannot be read.
        """
        return self._parsed(self._text())

    def change(self, change: Callable[[Config, Any], None]) -> None:
        """
        Change the file, which is made where it is absent.

        Args:
            change: gets the configuration and the document, a mapping that it may change.

        Raises:
            CliError: ``config_not_written``.
            CommandFailed, ConfigUnreadable: as :meth:`read`.
        """
        try:
            make_folder(os.path.dirname(self.path))
            # A link stays a link.
            target = os.path.realpath(self.path)
            with _locked(f"{target}.lock"):
                text = self._text()
                config, _unknown = self._parsed(text)
                wanted = changed(text, lambda document: change(config, document))
                self._parsed(wanted)
                write_atomically(target, wanted.encode(), mode=0o600)
        except OSError as error:
            raise CliError(
                "config_not_written", path=self.path, detail=(error.strerror or str(error)).lower()
            ) from error

    def _text(self) -> str:
        return "" if is_absent(self.path) else read_text(Path(self.path))

    def _parsed(self, text: str) -> tuple[Config, list[str]]:
        try:
            return read_config(text, self.path)
        except ConfigInvalid as error:
            raise CommandFailed(error, remarks=tuple(map(str, error.problems[1:]))) from error


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
