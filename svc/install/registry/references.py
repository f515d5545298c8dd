"""
Names in registries: hosts with ports, repositories, tags and digests.

The host is always written: there is no default registry. The grammar is that of the OCI Distribution Specification 1.1
(pulling manifests) and of the OCI Image Specification 1.1 (digests).
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from svc.install.registry.errors import RegistryError

_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"(?:({_LABEL}(?:\.{_LABEL})*)|\[([0-9A-Fa-f:.]+)\])(?::([0-9]{{1,5}}))?\Z")
_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY: Final = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*\Z")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
#: Hexadecimal digits by algorithm.
_DIGESTS: Final = {"sha256": 64, "sha512": 128}
_HEX: Final = re.compile(r"[0-9a-f]+\Z")
_MAX_HOST: Final = 253
_MAX_REPOSITORY: Final = 255
#: The registry of this name is served elsewhere.
_SERVED_BY: Final = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}


def is_digest(text: str) -> bool:
    """Whether a text is a digest whose algorithm is known: SHA-256 or SHA-512."""
    algorithm, _, value = text.partition(":")
    return len(value) == _DIGESTS.get(algorithm) and _HEX.match(value) is not None


def is_tag(text: str) -> bool:
    """Whether a text is a tag."""
    return _TAG.match(text) is not None


def is_repository(text: str) -> bool:
    """Whether a text is the name of a repository."""
    return len(text) <= _MAX_REPOSITORY and _REPOSITORY.match(text) is not None


def hash_of(digest: str) -> Any:
    """Make the hash object of ``hashlib`` for a digest."""
    return hashlib.new(digest.partition(":")[0])


def digest_of(data: bytes, like: str = "sha256:") -> str:
    """Return the digest of octets, by the algorithm of another digest."""
    found = hash_of(like)
    found.update(data)
    return f"{found.name}:{found.hexdigest()}"


@dataclass(frozen=True, slots=True)
class Host:
    """
    The host of a registry.

    Attributes:
        name: in lower case; an IPv6 address in brackets.
        port: None for that of the scheme.
    """

    name: str
    port: int | None = None

    @property
    def served_by(self) -> str:
        """Host and port to which requests go."""
        name = _SERVED_BY.get(self.name, self.name)
        return name if self.port is None else f"{name}:{self.port}"

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Registry:
    """
    A registry, with the prefix of its repositories.

    Attributes:
        host: its host.
        prefix: without slashes at its ends; empty for none.
    """

    host: Host
    prefix: str = ""

    def repository(self, name: str) -> str:
        """Return the name of a repository below the prefix."""
        return f"{self.prefix}/{name}" if self.prefix else name

    def __str__(self) -> str:
        return f"{self.host}/{self.prefix}" if self.prefix else str(self.host)


@dataclass(frozen=True, slots=True)
class Reference:
    """
    An image or another artifact in a registry.

    Attributes:
        host: of the registry.
        repository: its name.
        tag: empty for none.
        digest: of the manifest; empty for none.
    """

    host: Host
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def wanted(self) -> str:
        """What is asked for: the digest where there is one, else the tag, ``latest`` by default."""
        return self.digest or self.tag or "latest"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.host}/{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """
    What refers to content (OCI Image Specification 1.1, descriptors).

    Attributes:
        media_type: of the content.
        digest: of the content.
        size: in octets.
        artifact_type: empty for none.
        annotations: as they are.
    """

    media_type: str
    digest: str
    size: int
    artifact_type: str = ""
    annotations: Mapping[str, str] | None = None


def parse_registry(text: str) -> Registry:
    """
    Parse ``host[:port][/prefix]``.

    Raises:
        RegistryError: it has another form.
    """

    def refuse(defect: str) -> NoReturn:
        raise RegistryError("registry_invalid", text=text, defect=defect)

    if "://" in text:
        refuse("it has a scheme; HTTPS is used, and HTTP with the flag for it")
    host, slash, prefix = text.partition("/")
    prefix = prefix.removesuffix("/")
    parsed = _host(host)
    if parsed is None:
        refuse("its host or port is not valid")
    if slash and prefix and not is_repository(prefix):
        refuse("the prefix of its repositories is not valid: lower case letters, digits and single . _ - between them")
    return Registry(parsed, prefix)


def parse_reference(text: str) -> Reference:
    """
    Parse ``host[:port]/name[:tag][@digest]``; the first component is always the host.

    Raises:
        RegistryError: it has another form.
    """

    def refuse(defect: str) -> NoReturn:
        raise RegistryError("reference_invalid", text=text, defect=defect)

    if "://" in text:
        refuse("it has a scheme")
    rest, at, digest = text.partition("@")
    if at and not is_digest(digest):
        refuse("its digest is not sha256: with 64 or sha512: with 128 hexadecimal digits in lower case")
    host, _, path = rest.partition("/")
    parsed = _host(host)
    if parsed is None:
        refuse("its host or port is not valid")
    repository, colon, tag = path.partition(":")
    if not is_repository(repository):
        refuse("the name of its repository is not valid: lower case letters, digits and single . _ - between them")
    if colon and not is_tag(tag):
        refuse("its tag is not valid: 1 to 128 letters, digits, _ . -, not beginning with . or -")
    return Reference(parsed, repository, tag, digest)


def _host(text: str) -> Host | None:
    found = _HOST.match(text)
    if found is None:
        return None
    name, address, port = found.groups()
    if address is not None:
        try:
            name = f"[{ipaddress.IPv6Address(address)}]"
        except ValueError:
            return None
    if len(name) > _MAX_HOST or (port is not None and not 0 < int(port) < 65536):
        return None
    return Host(name.lower(), None if port is None else int(port))
