"""What the flags of ``svc install`` ask for, whatever the mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from svc.cli.install.modes import RegistryFlags
from svc.cli.install.rollout import Wishes


@dataclass(frozen=True, slots=True)
class Request:
    """
    One run.

    Args:
        file: the package; empty where none is named.
        version: of the release; empty where none is named.
        platforms: none for all.
        release_keys: files with public keys; none for those of the environment, or those that are built in.
        registry: of releases.
        mirror: of images, on the other side of the air gap.
        wishes: what is wanted of the cluster.
    """

    file: str
    version: str
    platforms: Sequence[str]
    release_keys: Sequence[str]
    registry: RegistryFlags
    mirror: RegistryFlags
    wishes: Wishes
