"""The file of a vendor's private keys: a line with the issuer, then an Ed25519 and an ML-DSA-87 key, PKCS #8 in PEM."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ed25519, mldsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from licensing.errors import SigningFailed
from svc.envelope.keys import Signer
from svc.license.vendors import VendorKey, VendorKeyMalformed, issuer_of, pem_parts

MIN_PASSPHRASE: Final = 12
#: Octets of a key file or a passphrase file.
_MAX_FILE: Final = 64 * 1024


@dataclass(frozen=True)
class SigningKey:
    """Both private keys of a vendor."""

    issuer: str
    classical: ed25519.Ed25519PrivateKey = field(repr=False)
    post_quantum: mldsa.MLDSA87PrivateKey = field(repr=False)

    @classmethod
    def generate(cls, issuer: str) -> SigningKey:
        """Make new keys."""
        return cls(issuer, ed25519.Ed25519PrivateKey.generate(), mldsa.MLDSA87PrivateKey.generate())

    @classmethod
    def parse(cls, text: str, passphrase: bytes | None, path: str) -> SigningKey:
        """
        Read the content of a file; ``path`` is its name in errors.

        Raises:
            SigningFailed: where it is no such file, or the passphrase is missing, wrong or superfluous.
        """
        try:
            issuer, parts = issuer_of(text), pem_parts(text)
        except VendorKeyMalformed as error:
            raise SigningFailed("key_file_malformed", path=path, defect=error.evidence["defect"]) from error
        encrypted = "ENCRYPTED PRIVATE KEY" in text
        if encrypted != (passphrase is not None):
            what = "is encrypted, and no --passphrase-file was given" if encrypted else "is not encrypted"
            raise SigningFailed("passphrase_unfit", path=path, what=what)
        try:
            classical, post_quantum = (load_pem_private_key(each.encode("ascii"), passphrase) for each in parts)
        except (ValueError, UnsupportedAlgorithm) as error:
            if encrypted:
                raise SigningFailed("passphrase_unfit", path=path, what="is encrypted with another one") from error
            raise SigningFailed("key_file_malformed", path=path, defect="a key cannot be read") from error
        if not isinstance(classical, ed25519.Ed25519PrivateKey) or not isinstance(
            post_quantum, mldsa.MLDSA87PrivateKey
        ):
            defect = "the keys are not Ed25519 and ML-DSA-87, in this order"
            raise SigningFailed("key_file_malformed", path=path, defect=defect)
        return cls(issuer, classical, post_quantum)

    def render(self, passphrase: bytes | None) -> str:
        """Write the file; :meth:`parse` reads it back."""
        encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
        pem = (
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode("ascii")
            for key in (self.classical, self.post_quantum)
        )
        return f"Issuer: {self.issuer}\n{''.join(pem)}"

    @property
    def public(self) -> VendorKey:
        """What programs need to accept its licenses."""
        return VendorKey(self.issuer, self.classical.public_key(), self.post_quantum.public_key())

    @property
    def signers(self) -> tuple[Signer, Signer]:
        """What signs an envelope."""
        return Signer.from_raw_key(self.classical), Signer.from_raw_key(self.post_quantum)


def read_signing_key(path: Path, passphrase_file: Path | None) -> SigningKey:
    """
    Read the file of a private key.

    Args:
        path: of the key.
        passphrase_file: with the passphrase in its first line; None for a key that is not encrypted.

    Raises:
        SigningFailed: one of the files cannot be read, or they do not fit.
    """
    return SigningKey.parse(_read(path), read_passphrase(passphrase_file), str(path))


def read_passphrase(path: Path | None) -> bytes | None:
    """
    Read a passphrase from the first line of a file; None where there is none.

    Raises:
        SigningFailed: the file cannot be read, or the line is shorter than :data:`MIN_PASSPHRASE`.
    """
    if path is None:
        return None
    found = _read(path).partition("\n")[0].removesuffix("\r")
    if len(found) < MIN_PASSPHRASE:
        raise SigningFailed("passphrase_short", path=path, count=len(found), least=MIN_PASSPHRASE)
    return found.encode("utf-8")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE).decode("utf-8")
    except UnicodeDecodeError as error:
        raise SigningFailed("file_unreadable", path=path, detail="it is no text") from error
    except OSError as error:
        raise SigningFailed("file_unreadable", path=path, detail=(error.strerror or str(error)).lower()) from error
