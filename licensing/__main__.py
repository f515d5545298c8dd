"""``bin/license-sign``: the options, the files, and what is printed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from licensing.description import Description
from licensing.errors import SigningFailed
from licensing.keyfile import MIN_PASSPHRASE, SigningKey, read_passphrase, read_signing_key
from svc import naming, settings
from svc.envelope.claims import utc_seconds
from svc.envelope.envelope import sign_envelope
from svc.errors import SvcError
from svc.license.armour import ArmouredText, armoured
from svc.license.payload import License
from svc.license.vendors import VendorKeyMalformed, issuer_of, pinned_keys
from svc.license.verification import MAX_ENVELOPE, verify_license
from svc.settings import ConfigInvalid
from svc.strictjson import b64u_encode


def sign(license: License, key: SigningKey) -> str:  # noqa: A002 - there is no other word for it
    """
    Sign a license; returns the file, which the verifier of the product has accepted.

    Raises:
        EnvelopeError: where it would refuse it, for example because it is too large.
    """
    envelope = sign_envelope(license.to_payload(), naming.TYPE_LICENSE, key.signers)
    headers = (("Licensee", license.licensee), ("Expires", utc_seconds(license.not_after)))
    text = armoured(ArmouredText(headers, envelope.serialize(max_bytes=MAX_ENVELOPE)))
    verify_license(text.encode("utf-8"), [key.public])
    return text


def _new_key(options: argparse.Namespace, _now: Callable[[], datetime]) -> None:
    try:
        fits = options.issuer.isprintable() and issuer_of(f"Issuer: {options.issuer}\n") == options.issuer
    except VendorKeyMalformed as error:
        raise SigningFailed("issuer_unfit", issuer=options.issuer, defect=error.evidence["defect"]) from error
    if not fits:
        raise SigningFailed("issuer_unfit", issuer=options.issuer, defect="it has other characters or blanks around it")
    passphrase = read_passphrase(options.passphrase_file)
    private, public = options.output, options.output.with_name(f"{options.output.name}.pub")
    if public.exists():
        raise SigningFailed("file_exists", path=public)
    key = SigningKey.generate(options.issuer)
    _write(private, key.render(passphrase), 0o600)
    _write(public, key.public.render(), 0o644)
    _say(f"private keys: {private}{'' if passphrase else ', not encrypted: keep it offline'}")
    _say(f"public keys: {public}, for --vendor-key or --release-key of bin/release and bin/image")
    for alg, kid in key.public.kids.items():
        _say(f"{alg}: kid {kid}")


def _sign(options: argparse.Namespace, now: Callable[[], datetime]) -> None:
    key = read_signing_key(options.key, options.passphrase_file)
    description = settings.load(options.description, Description)
    made = description.license(key.issuer, b64u_encode(os.urandom(16)), now())
    text = sign(made, key)
    if options.output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        _write(options.output, text, 0o644)
    _say(
        f"license {made.id} for {made.licensee}: valid from {utc_seconds(made.not_before)} "
        f"until {utc_seconds(made.not_after)}, grace until {utc_seconds(made.grace_until)}"
    )
    known = [each for each in pinned_keys() if each.kids == key.public.kids]
    if not known:
        _say(f"only a program that was built with bin/release --vendor-key {options.key}.pub accepts the license")
    elif known[0].test:
        _say("the key is the test vendor's: only svc run from a checkout accepts the license")


def _write(path: Path, text: str, mode: int) -> None:
    """Write a file that is not there yet."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise SigningFailed("file_exists", path=path) from error
    except OSError as error:
        raise SigningFailed("file_unwritable", path=path, detail=(error.strerror or str(error)).lower()) from error


def _say(text: str) -> None:
    print(f"license-sign: {text}", file=sys.stderr)


_KEY_HELP: Final = """\
Make a pair of keys, Ed25519 and ML-DSA-87, which sign licenses or releases together. PATH gets the private keys, mode
0600, and PATH.pub the public ones, with which bin/release and bin/image build what accepts them. Neither file is ever
replaced.
"""
_SIGN_HELP: Final = """\
Sign the license that DESCRIPTION describes. The file is verified as svc does it before it is written.

DESCRIPTION is YAML:

  licensee: ACME GmbH
  customer: acme-17                  # your identifier of the customer
  edition: enterprise
  expires: 2027-12-31T23:59:59Z      # the first instant at which it is not valid any more
  # what follows may be left out
  notBefore: 2026-01-01T00:00:00Z    # the time of signing, if left out
  features: [federation]
  limits: {clusters: 3, workloads: 500, federatedPeers: 4}
  graceDays: 30
  warnDays: [60, 30, 14, 7, 1]
  maintenanceUntil: 2027-12-31T23:59:59Z
  trustDomains: [prod.example.org]   # any, if left out
  enforcement: soft                  # or hard
"""


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="bin/license-sign",
        description="For the vendor: make keys that sign licenses, and sign licenses (docs/license.md).",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="new-key | sign", dest="command")
    new = commands.add_parser(
        "new-key", help="make a pair of keys", description=_KEY_HELP, formatter_class=raw, allow_abbrev=False
    )
    new.add_argument("--issuer", required=True, metavar="NAME", help="the name of the vendor, iss of its licenses")
    new.add_argument("--output", required=True, type=Path, metavar="PATH", help="where the private keys go")
    new.set_defaults(run=_new_key)
    one = commands.add_parser(
        "sign", help="sign a license", description=_SIGN_HELP, formatter_class=raw, allow_abbrev=False
    )
    one.add_argument("description", type=Path, metavar="DESCRIPTION", help="what the license is to contain")
    one.add_argument("--key", required=True, type=Path, metavar="PATH", help="the private keys")
    one.add_argument("--output", type=Path, metavar="FILE", help="where the license goes (default: standard output)")
    one.set_defaults(run=_sign)
    for each in (new, one):
        text = f"its first line, of at least {MIN_PASSPHRASE} characters, encrypts the private keys"
        each.add_argument("--passphrase-file", type=Path, metavar="FILE", help=text)
    return parser


def main(given: Sequence[str], now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> int:
    """Do what is asked for; returns the exit status."""
    options = _parser().parse_args(given)
    try:
        options.run(options, now)
    except ConfigInvalid as error:
        for problem in error.problems:
            _say(f"{error.path}: {problem}")
        return 1
    except SvcError as error:
        _say(f"{error} ({error.reason})")
        if error.hint:
            print(f"     {error.hint}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
