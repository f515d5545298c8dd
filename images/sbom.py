"""
What an image contains, as an SPDX 2.3 document.

Debian packages are those of the package database in the image, Python packages those whose metadata is installed, Go
modules those that the linker wrote into each program.
"""

from __future__ import annotations

import email.parser
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

#: What the linker of Go puts before the build information, and around the list of modules.
_GO_MAGIC: Final = b"\xff Go buildinf:"
_GO_MARK: Final = 16


@dataclass(frozen=True, order=True)
class Package:
    """
    One package of an image.

    Args:
        kind: ``deb``, ``pypi`` or ``golang``.
        name: as its ecosystem spells it.
        version: the same.
        licence: what its metadata says; "" where it is silent.
    """

    kind: str
    name: str
    version: str
    licence: str = ""

    @property
    def url(self) -> str:
        """The package URL."""
        namespace = "debian/" if self.kind == "deb" else ""
        name = re.sub(r"[-_.]+", "-", self.name).lower() if self.kind == "pypi" else self.name
        return f"pkg:{self.kind}/{namespace}{quote(name, safe='/+.-_')}@{quote(self.version, safe='.-_')}"


def debian_packages(status: Path) -> Iterator[Package]:
    """Read the packages of a database of dpkg, its file ``status``."""
    for paragraph in status.read_text().split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            yield Package("deb", fields["Package"], fields["Version"])


def python_packages(folder: Path) -> Iterator[Package]:
    """Read the packages that are installed in a folder."""
    for path in folder.glob("*.dist-info/METADATA"):
        head = email.parser.Parser().parsestr(path.read_text(), headersonly=True)
        licence = head["License-Expression"] or head["License"] or ""
        yield Package("pypi", head["Name"], head["Version"], licence if len(licence) < 100 else "")


def go_packages(program: Path) -> Iterator[Package]:
    """
    Read the modules of a Go program, its own first.

    Raises:
        ValueError: it is none.
    """
    data = program.read_bytes()
    start = data.find(_GO_MAGIC)
    if start < 0:
        raise ValueError(f"{program} has no build information of Go")
    version, rest = _go_string(data, start + 32)
    modules, _rest = _go_string(data, rest)
    yield Package("golang", "stdlib", version.decode().split(" ")[0])
    for line in modules[_GO_MARK:-_GO_MARK].decode().splitlines():
        kind, *fields = line.split("\t")
        if kind in ("mod", "dep", "=>"):
            yield Package("golang", fields[0], fields[1])


def document(name: str, version: str, packages: Iterable[Package], created: str) -> dict[str, Any]:
    """
    Make the document of an image.

    Args:
        name: of the image.
        version: of the image.
        packages: what it contains.
        created: RFC 3339; does not change where nothing else does.

    Returns:
        The document, for JSON.
    """
    listed = sorted(set(packages))
    content = hashlib.sha256("\n".join(each.url for each in listed).encode()).hexdigest()
    root = {
        "SPDXID": "SPDXRef-Image",
        "name": name,
        "versionInfo": version,
        "primaryPackagePurpose": "CONTAINER",
        **_unknown("Apache-2.0"),
    }
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{name}-{version}",
        "documentNamespace": f"https://svc.internal/sbom/{name}-{version}-{content}",
        "creationInfo": {"created": created, "creators": [f"Tool: bin/image-{version}"]},
        "packages": [root, *(_described(number, each) for number, each in enumerate(listed, 1))],
        "relationships": [
            _related("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image"),
            *(_related("SPDXRef-Image", "CONTAINS", f"SPDXRef-Package-{n}") for n in range(1, len(listed) + 1)),
        ],
    }


def _described(number: int, package: Package) -> dict[str, Any]:
    reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": package.url}
    # Other texts than SPDX expressions are not allowed in the field.
    plain = re.fullmatch(r"[A-Za-z0-9.+-]+(?: (?:OR|AND|WITH) [A-Za-z0-9.+-]+)*", package.licence)
    return {
        "SPDXID": f"SPDXRef-Package-{number}",
        "name": package.name,
        "versionInfo": package.version,
        "externalRefs": [reference],
        **_unknown(package.licence if plain else "NOASSERTION"),
    }


def _unknown(licence: str) -> dict[str, Any]:
    return {
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
    }


def _related(element: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": other}


def _go_string(data: bytes, at: int) -> tuple[bytes, int]:
    """Read a string with its length before it, as an unsigned LEB128; gives the offset behind it too."""
    length = shift = 0
    while True:
        octet = data[at]
        at += 1
        length |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            return data[at : at + length], at + length
