"""What the driver needs of the system."""

# Methods of a zope interface are declared without ``self``.
# ruff: noqa: N805

from __future__ import annotations

from zope.interface import Interface


class IMounts(Interface):
    """Mounts folders."""

    def mounted(path: str) -> bool:
        """Whether something is mounted at a path without symbolic links."""

    def bind(source: str, target: str) -> None:
        """Mount a folder at another one read-only, nosuid, nodev, noexec; raises ``OSError`` and mounts nothing."""

    def unmount(target: str) -> None:
        """Undo the last mount; raises ``OSError``."""
