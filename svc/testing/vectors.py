"""
Test vectors as text files: a few header lines, then named sections, with the expected result on a line of its own.

::

    # What this vector shows, in a sentence.
    expect: signature_invalid{ES256}
    type: svc-receipt+jws
    profile: hybrid
    now: 2026-11-21T00:25:32Z
    spiffe: prod.example.org=prod-p256
    pq: prod.example.org=prod-pq

    --- envelope
    {"payload":"…"}

The file has comments (``#``) and ``name: value`` lines up to the first section, then sections whose first line is ``---
<kind> [<label>]``. The content of a section is everything between these lines, without the last line feed; the kind
``<kind>.base64`` is for octets that are not text. A reader names the header lines and section kinds that it accepts,
and everything else is refused, so that a misspelt line can never make a vector pass. Vectors share trust anchors: a
folder of PEM files, named by the header lines ``spiffe`` and ``pq``.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509

from svc.errors import SvcError
from svc.identity import BundleSet, TrustDomain, X509Bundle
from svc.notary.verification import Anchors

_MARK: Final = "--- "
_BASE64: Final = ".base64"


class VectorRefused(SvcError):
    """the test vector {name} cannot be read: {defect}"""

    reason = "vector_refused"


@dataclass(frozen=True)
class Vector:
    """
    One test vector.

    Attributes:
        name: path below the folder of vectors without the suffix, as ``jws/spare-bits``.
        headers: the header lines, ``expect`` among them.
        sections: content by section line (``"envelope"``, ``"spiffe prod.example.org"``).
        comment: the comment lines joined.
    """

    name: str
    headers: Mapping[str, str] = field(hash=False)
    sections: Mapping[str, bytes] = field(hash=False)
    comment: str = ""

    @property
    def expect(self) -> str:
        """``ok``, or the reason with its parameter."""
        return self.headers["expect"]

    @classmethod
    def parse(cls, name: str, data: bytes, *, headers: Collection[str], kinds: Collection[str]) -> Vector:
        """
        Read one file.

        Args:
            name: the name of the vector in failures.
            data: the whole file.
            headers: names of the header lines that are accepted, besides ``expect``.
            kinds: kinds of the sections that are accepted.

        Raises:
            VectorRefused: for an unknown or repeated line or section, or where ``expect`` is missing.
        """
        try:
            lines = data.decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise VectorRefused(name=name, defect="not UTF-8") from error
        first = next((n for n, line in enumerate(lines) if line.startswith(_MARK)), len(lines))
        comment, found = _headers(name, lines[:first])
        unknown = sorted(set(found) - set(headers) - {"expect"})
        if unknown:
            raise VectorRefused(name=name, defect=f"unknown header line {unknown[0]!r}")
        if not found.get("expect"):
            raise VectorRefused(name=name, defect="no line expect:")
        sections = dict(_sections(name, lines[first:], kinds))
        return cls(name, found, sections, comment)

    def section(self, name: str) -> bytes:
        """
        Return the content of a section by its line without the mark.

        Raises:
            VectorRefused: where the vector has no such section.
        """
        if name not in self.sections:
            raise VectorRefused(name=self.name, defect=f"no section {name!r}")
        return self.sections[name]

    def labelled(self, kind: str) -> dict[str, bytes]:
        """Return the content of all sections of one kind by label, in the order of the file."""
        return {line.partition(" ")[2]: data for line, data in self.sections.items() if line.split(" ")[0] == kind}

    def moment(self, header: str = "now") -> datetime:
        """
        Read a header line ``YYYY-MM-DDThh:mm:ssZ`` as an aware time.

        Raises:
            VectorRefused: where the line is missing or malformed.
        """
        text = self.headers.get(header, "")
        try:
            return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError as error:
            raise VectorRefused(name=self.name, defect=f"{header}: is not a time") from error

    def render(self) -> bytes:
        """Write the file; :meth:`parse` reads it back to an equal vector."""
        lines = [f"# {line}" for line in self.comment.split("\n") if line]
        lines += [f"expect: {self.expect}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items() if name != "expect"]
        lines.append("")
        for line, data in self.sections.items():
            kind, _, label = line.partition(" ")
            text = _as_text(data)
            suffix = "" if text is not None else _BASE64
            lines.append(f"{_MARK}{kind}{suffix}" + (f" {label}" if label else ""))
            lines.append(text if text is not None else base64.b64encode(data).decode("ascii"))
        return "\n".join(lines).encode("utf-8") + b"\n"


def load_vectors(folder: Path, *, headers: Collection[str], kinds: Collection[str]) -> list[Vector]:
    """
    Read every ``.txt`` file below a folder of vectors, in order of name.

    Args:
        folder: one group, as ``tests/vectors/jws``.
        headers: as in :meth:`Vector.parse`.
        kinds: as in :meth:`Vector.parse`.

    Raises:
        VectorRefused: as :meth:`Vector.parse`, and for a folder without vectors or with other files.
    """
    vectors = []
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        name = path.relative_to(folder.parent).with_suffix("").as_posix()
        if path.suffix != ".txt":
            raise VectorRefused(name=name, defect=f"a file {path.name} that is no vector")
        vectors.append(Vector.parse(name, path.read_bytes(), headers=headers, kinds=kinds))
    if not vectors:
        raise VectorRefused(name=str(folder), defect="no vectors")
    return vectors


def vector_anchors(vector: Vector, folder: Path) -> Anchors:
    """
    Read the trust anchors that a vector names in its header lines ``spiffe`` and ``pq``.

    Args:
        vector: its lines are ``<trust domain>=<file>``, separated by commas; an absent line means no bundles.
        folder: the folder of ``<file>.pem``; a file without certificates is an empty bundle.

    Raises:
        VectorRefused: where a line or a file cannot be read.
    """
    return Anchors(_bundles(vector, "spiffe", folder), _bundles(vector, "pq", folder))


def _bundles(vector: Vector, header: str, folder: Path) -> BundleSet:
    bundles = []
    for item in vector.headers.get(header, "").split(","):
        if not item.strip():
            continue
        name, _, file = item.strip().partition("=")
        try:
            pem = (folder / f"{file}.pem").read_bytes()
            certificates = x509.load_pem_x509_certificates(pem) if pem.strip() else []
        except (OSError, ValueError) as error:
            raise VectorRefused(name=vector.name, defect=f"the anchors {file!r} cannot be read") from error
        bundles.append(X509Bundle.from_certificates(TrustDomain.parse(name), certificates))
    return BundleSet.of(*bundles)


def _headers(name: str, lines: list[str]) -> tuple[str, dict[str, str]]:
    comments: list[str] = []
    found: dict[str, str] = {}
    for line in lines:
        if line.startswith("#"):
            comments.append(line[1:].strip())
        elif line.strip():
            word, colon, value = line.partition(":")
            if not colon or word in found:
                raise VectorRefused(name=name, defect=f"repeated or broken header line {line!r}")
            found[word] = value.strip()
    return "\n".join(comments), found


def _sections(name: str, lines: list[str], kinds: Collection[str]) -> Iterator[tuple[str, bytes]]:
    if lines and lines[-1] == "":
        lines = lines[:-1]
    starts = [n for n, line in enumerate(lines) if line.startswith(_MARK)] + [len(lines)]
    seen: set[str] = set()
    for start, end in itertools.pairwise(starts):
        kind, _, label = lines[start][len(_MARK) :].partition(" ")
        text = "\n".join(lines[start + 1 : end])
        encoded = kind.endswith(_BASE64)
        kind = kind.removesuffix(_BASE64)
        line = f"{kind} {label}" if label else kind
        if kind not in kinds or line in seen:
            raise VectorRefused(name=name, defect=f"unknown or repeated section {line!r}")
        seen.add(line)
        try:
            yield line, base64.b64decode(text, validate=True) if encoded else text.encode("utf-8")
        except binascii.Error as error:
            raise VectorRefused(name=name, defect=f"the section {line!r} is not base64") from error


def _as_text(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if any(line.startswith(_MARK) for line in text.split("\n")) else text
