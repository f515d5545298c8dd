"""
Writes the vectors of licenses, ``license/``.

Run from the top of the checkout, then look at what changed and run the tests::

    .venv/bin/python -m tests.vectors.make_license

Keys come from fixed seeds (see ``material.py``); ML-DSA signatures are new in each run.
"""

from __future__ import annotations

import dataclasses
import json
import quopri
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from svc.envelope.claims import utc_seconds
from svc.envelope.keys import Signer
from svc.license import payload as bounds
from svc.license.armour import MAX_FILE
from svc.license.payload import Enforcement
from svc.strictjson import b64u_encode, dumps
from svc.testing.vectors import Vector
from tests.license.material import LICENSE, NOW, SECOND, STRANGER, envelope, signers, text_of
from tests.vectors.material import FOLDER, forge, make_key, seed
from tests.vectors.scenario import A, flip

GOOD = envelope()
TEXT = text_of(GOOD)
CLAIMS: dict[str, Any] = json.loads(LICENSE.to_payload())
SECOND_OF_TIME = timedelta(seconds=1)
DAY = timedelta(days=1)


def main() -> None:
    """Write everything."""
    for group in (good, mail, damage, envelopes, keys, payloads, claims, instants, surroundings):
        group()


def one(name: str, comment: str, expect: str, content: object = TEXT, **headers: str) -> None:
    """Write a vector; the content is a file, or an envelope to put into one."""
    if isinstance(content, str):
        data = content.encode("utf-8")
    elif isinstance(content, bytes):
        data = content
    else:
        data = text_of(content).encode("utf-8")  # type: ignore[arg-type]
    lines: Mapping[str, str] = {"expect": expect, "now": utc_seconds(NOW), **headers}
    vector = Vector(f"license/{name}", lines, {"file": data}, comment)
    (FOLDER / "license" / f"{name}.txt").write_bytes(vector.render())


def with_claims(**changes: object) -> dict[str, Any]:
    """Sign claims with other members; those whose value is ... are left out."""
    members = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not ...}
    return envelope(dumps(members))


def with_inner(**changes: object) -> dict[str, Any]:
    """Sign a member ``svc`` with other members."""
    return with_claims(svc={name: value for name, value in {**CLAIMS["svc"], **changes}.items() if value is not ...})


def good() -> None:
    """Licenses that are accepted."""
    one("good", "A license as it is sent.", "Valid")
    one(
        "good-second-key",
        "Signed with the vendor's other key, as while keys are replaced.",
        "Valid",
        envelope(name=SECOND),
    )
    swapped = envelope()
    swapped["signatures"].reverse()
    one("good-reversed", "The order of the signatures carries no meaning.", "Valid", swapped)
    one("good-unknown-claims", "Unknown claims are ignored.", "Valid", with_inner(seats=7))
    bare = dataclasses.replace(
        LICENSE, features=(), limits={}, grace_days=0, warn_days=(), maintenance_until=None, trust_domains=()
    )
    one("good-bare", "Every list is empty, and nothing is optional but maintenanceUntil.", "Valid", envelope(bare))
    hard = dataclasses.replace(LICENSE, enforcement=Enforcement.HARD)
    one("good-hard", "The other enforcement.", "Valid", envelope(hard))
    other = TEXT.replace("2027-12-31", "2099-12-31").replace("ACME GmbH", "Somebody Else")
    one("good-headers-changed", "Nobody signs the headers, and nothing is read from them.", "Valid", other)


def mail() -> None:
    """What mail programs do to text, and is undone."""
    head, _blank, body = TEXT.partition("\n\n")
    around = f"Dear customer,\n\nhere it is: your license.\n\n{TEXT}\n-- \nThe vendor\n"
    one("mail-around", "Text before and behind the license.", "Valid", around)
    one("mail-crlf", "Lines end with CR LF.", "Valid", around.replace("\n", "\r\n"))
    one("mail-cr", "Lines end with CR.", "Valid", TEXT.replace("\n", "\r"))
    one("mail-bom", "A byte order mark before the text.", "Valid", "\ufeff" + TEXT)
    one("mail-utf16", "Saved as UTF-16 with its mark.", "Valid", TEXT.encode("utf-16"))
    quoted = "".join(f"> > {line}\n" for line in TEXT.splitlines())
    one("mail-quoted", "Quoted twice in an answer.", "Valid", f"On Monday the vendor wrote:\n{quoted}")
    one("mail-indented", "Indented, with blanks at the ends of lines.", "Valid", TEXT.replace("\n", "  \n\t "))
    one("mail-doubled", "A blank line behind each line.", "Valid", TEXT.replace("\n", "\n\n"))
    one("mail-no-blank-line", "The line between headers and base64 is gone.", "Valid", f"{head}\n{body}")
    one("mail-no-headers", "No headers at all.", "Valid", f"{TEXT.splitlines()[0]}\n{body}")
    one("mail-wrapped-header", "A long header was wrapped.", "Valid", TEXT.replace("ACME GmbH", "ACME\nGmbH"))
    lines = body.removesuffix("\n").splitlines()
    octets = "".join(lines[:-1])
    rewrapped = "\n".join(octets[at : at + 50] for at in range(0, len(octets), 50))
    one("mail-rewrapped", "Other lengths of lines.", "Valid", f"{head}\n\n{rewrapped}\n{lines[-1]}\n")
    one(
        "mail-one-line",
        "One line of base64, with blanks in it.",
        "Valid",
        f"{head}\n\n{octets[:99]} {octets[99:]}\n{lines[-1]}",
    )
    padded = text_of(dumps(GOOD) + b" " * ((1 - len(dumps(GOOD))) % 3))
    printable = quopri.encodestring(padded.replace("GmbH", "GmbH é").encode("utf-8"))
    one("mail-quoted-printable", "Quoted-printable (RFC 2045, 6.7), not decoded.", "Valid", printable)
    unpadded = text_of(dumps(GOOD) + b" " * (-len(dumps(GOOD)) % 3)).partition("\n\n")[2].splitlines()
    plain = "".join(unpadded[:-1])
    folded = "=\n".join(plain[at : at + 75] for at in range(0, len(plain), 75))
    one("mail-soft-breaks", "Soft line breaks alone.", "Valid", f"{head}\n\n{folded}\n{unpadded[-1]}\n")
    one("mail-latin1", "A header in Latin-1.", "Valid", TEXT.replace("GmbH", "Münze").encode("latin-1"))
    one("mail-dashes", "A word processor replaced the dashes.", "Valid", TEXT.replace("-----", "\u2014\u2014-"))
    one(
        "mail-signed",
        "Dashes escaped by a signed message (RFC 9580, 7.2).",
        "Valid",
        TEXT.replace("-----B", "- -----B").replace("-----E", "- -----E"),
    )
    space = TEXT.replace("SVC LICENSE", "SVC\u00a0LICENSE").replace("\n", "\u200b\n")
    one("mail-invisible", "No-break spaces and zero-width spaces.", "Valid", space)
    one("mail-at-limit", "The largest file.", "Valid", **{"pad-to": str(MAX_FILE)})


def damage() -> None:
    """Files without a license that can be read."""
    broken = "Invalid license_damaged"
    over = {"pad-to": str(MAX_FILE + 1)}
    one("file-over-limit", "An octet more than the largest file.", "Invalid license_too_large", **over)
    one("file-empty", "Nothing.", "Invalid license_not_found", "")
    one("file-other", "Another kind of file.", "Invalid license_not_found", TEXT.replace("SVC LICENSE", "CERTIFICATE"))
    one("file-octets", "Octets that are no text.", "Invalid license_not_found", bytes(range(256)))
    one("file-twice", "The license twice in one file.", "Invalid license_several", TEXT + TEXT)
    lines = TEXT.splitlines()
    one("file-cut", "The last line is missing.", "Invalid license_cut", "\n".join(lines[:-1]))
    one("file-cut-earlier", "The last part is missing.", "Invalid license_cut", "\n".join(lines[:40]))
    one(
        "file-end-first",
        "The last line is before the first.",
        "Invalid license_cut",
        f"{lines[-1]}\n" + "\n".join(lines[:-1]),
    )
    one("file-one-line", "All line ends were lost.", broken, " ".join(lines))
    one("file-nothing-between", "Nothing between the two lines.", broken, f"{lines[0]}\n\n{lines[-1]}\n")
    one("file-headers-only", "Headers between the two lines.", broken, "\n".join([*lines[:3], lines[-1]]))
    one("file-stray-character", "A character that base64 does not have.", broken, TEXT.replace("\n\n", "\n\n*", 1))
    one("file-character-missing", "A character is missing.", broken, "\n".join([*lines[:9], lines[9][1:], *lines[10:]]))
    one("file-line-missing", "A line is missing.", "Invalid malformed", "\n".join([*lines[:9], *lines[10:]]))
    one("file-no-json", "Base64 of something else.", "Invalid malformed", text_of(b"no JSON"))
    large = {**GOOD, "note": "x" * 65536}
    one("envelope-too-large", "An envelope of more than 64 KiB.", "Invalid too_large", large)
    room = 65536 - len(dumps({**GOOD, "note": ""}))
    one("envelope-at-limit", "An envelope of 64 KiB.", "Valid", {**GOOD, "note": "x" * room})


def envelopes() -> None:
    """Envelopes that are not those of licenses."""
    one("type-statement", "A statement is no license.", "Invalid wrong_type", envelope(typ="svc-statement+jws"))
    extra = envelope(protected={"crit": ["svc-set", "exp"], "exp": 1})
    one("crit-extra", "A critical member that nobody knows.", "Invalid critical_unknown", extra)
    one("alg-none", "No algorithm.", "Invalid alg_not_allowed", envelope(protected={"alg": "none"}))
    stripped = envelope()
    del stripped["signatures"][1]
    one("set-stripped", "The ML-DSA signature was removed.", "Invalid set_mismatch", stripped)
    reason = "Invalid license_signatures"
    for signer in signers():
        alone = forge([signer], LICENSE.to_payload(), typ="svc-license+jws")
        one(f"signature-{signer.alg.lower()}-alone", f"Only {signer.alg} was ever meant to sign.", reason, alone)
    weak = [signers()[0], Signer.from_raw_key(make_key("ML-DSA-65", "license test vendor"))]
    one("signature-ml-dsa-65", "A weaker ML-DSA.", reason, forge(weak, LICENSE.to_payload(), typ="svc-license+jws"))
    curve = [Signer.from_raw_key(make_key("ES384", "license test vendor")), signers()[1]]
    one(
        "signature-es384",
        "Another classical algorithm.",
        reason,
        forge(curve, LICENSE.to_payload(), typ="svc-license+jws"),
    )
    for index, signer in enumerate(signers()):
        bent = envelope()
        bent["signatures"][index]["signature"] = flip(bent["signatures"][index]["signature"])
        name = f"signature-{signer.alg.lower()}-bit"
        one(
            name,
            f"One bit of the {signer.alg} signature is changed.",
            f"Invalid signature_invalid{{{signer.alg}}}",
            bent,
        )
    longer = json.loads(LICENSE.to_payload())
    longer["exp"] += 86400 * 3650
    changed = {**GOOD, "payload": b64u_encode(dumps(longer))}
    one("payload-changed", "The customer gave it ten years more.", "Invalid signature_invalid{Ed25519}", changed)


def keys() -> None:
    """Keys that do not sign licenses, or not together."""
    malformed = "Invalid malformed"
    one("kid-missing", "No key is named.", malformed, envelope(without=["kid"]))
    one(
        "kid-and-thumbprint",
        "A certificate's thumbprint beside kid.",
        malformed,
        envelope(protected={"x5t#S256": A.thumbprint}),
    )
    one("kid-and-certificates", "Certificates beside kid.", malformed, envelope(x5c=A.x5c))
    one("key-stranger", "A key that nobody knows.", "Invalid license_key_unknown", envelope(name=STRANGER))
    one(
        "key-none-built-in",
        "A key of a vendor, for a program that was built without any.",
        "Invalid license_keys_none",
        envelope(name=STRANGER),
        keys="none",
    )
    thumbprint = {name: signers()[1 - index].thumbprint for index, name in enumerate(("Ed25519", "ML-DSA-87"))}
    crossed = envelope(protected_of={name: {"kid": kid} for name, kid in thumbprint.items()})
    one(
        "kid-of-other-algorithm",
        "Each header names the other's key.",
        "Invalid license_key_unknown",
        crossed,
        keys="production",
    )
    mixed = forge([signers()[0], signers(SECOND)[1]], LICENSE.to_payload(), typ="svc-license+jws")
    one("keys-mixed", "One signature of each of the vendor's keys.", "Invalid license_keys_mixed", mixed)
    lying = envelope(name=STRANGER, protected_of={s.alg: {"kid": s.thumbprint} for s in signers()})
    one("kid-of-vendor", "A stranger names the vendor's keys.", "Invalid signature_invalid{Ed25519}", lying)
    one(
        "key-test-vendor-released",
        "The test vendor, for a program that was released.",
        "Invalid license_key_of_tests",
        keys="released",
    )
    other = dataclasses.replace(LICENSE, issuer="Another vendor")
    one("issuer-other", "The payload names another issuer than the key's.", "Invalid issuer_mismatch", envelope(other))


def payloads() -> None:
    """Payloads that are not those of licenses."""
    one("payload-not-json", "The payload is no JSON.", "Invalid malformed", envelope(b"x"))
    one("payload-array", "The payload is an array.", "Invalid malformed", envelope(b"[]"))
    text = LICENSE.to_payload()
    doubled = envelope(text[:-1] + b',"exp":9999999999}')
    one("payload-duplicate-exp", "Two ends.", "Invalid malformed", doubled)
    one(
        "payload-fraction", "A time with a fraction.", "Invalid malformed", envelope(text.replace(b'"v":1', b'"v":1.0'))
    )
    one("version-2", "A version of the future.", "Invalid unsupported_version", with_claims(v=2))
    one("version-missing", "No version.", "Invalid malformed", with_claims(v=...))
    one("audience-other", "A license for another product.", "Invalid audience_mismatch", with_claims(aud="other"))
    two = envelope(dumps({**CLAIMS, "v": 2, "iss": "Another vendor"}), other_payload=b"{}")
    one(
        "two-defects",
        "Version, issuer and signatures are wrong: the version is checked first.",
        "Invalid unsupported_version",
        two,
    )


def claims() -> None:
    """Claims that are missing, mistyped or beyond their bounds."""
    malformed = "Invalid malformed"
    for name in ("jti", "iss", "sub", "aud", "iat", "nbf", "exp", "svc"):
        one(f"claim-{name.lower()}-missing", f"No {name}.", malformed, with_claims(**{name: ...}))
    for name in ("licensee", "edition", "features", "limits", "graceDays", "warnDays", "trustDomains", "enforcement"):
        one(f"claim-{name.lower()}-missing", f"No {name}.", malformed, with_inner(**{name: ...}))
    one("claim-jti-short", "An identifier of 15 octets.", malformed, with_claims(jti=b64u_encode(seed("x")[:15])))
    one("claim-exp-text", "A time as text.", malformed, with_claims(exp="2027-12-31T23:59:59Z"))
    one("claim-exp-year-10000", "A time beyond the calendar.", malformed, with_claims(exp=253402300800))
    one("claim-exp-at-nbf", "It ends as it begins.", malformed, with_claims(exp=CLAIMS["nbf"]))
    one("claim-exp-after-nbf", "It is valid for one second.", "Expired", with_claims(exp=CLAIMS["nbf"] + 1))
    one(
        "claim-grace-year-10000", "Its days of grace end beyond the calendar.", malformed, with_claims(exp=253402300799)
    )
    one("claim-maintenance-date", "A date without a time.", malformed, with_inner(maintenanceUntil="2027-12-31"))
    one(
        "claim-maintenance-zone",
        "A time of another zone.",
        malformed,
        with_inner(maintenanceUntil="2027-12-31T23:59:59+01:00"),
    )
    one("claim-enforcement-other", "An enforcement that nobody knows.", malformed, with_inner(enforcement="brutal"))
    one(
        "claim-trust-domain-upper",
        "A trust domain in upper case.",
        malformed,
        with_inner(trustDomains=["Prod.Example.Org"]),
    )
    one("claim-limit-negative", "A negative limit.", malformed, with_inner(limits={"workloads": -1}))
    one("claim-limit-text", "A limit as text.", malformed, with_inner(limits={"workloads": "500"}))
    one("claim-feature-twice", "A feature twice.", malformed, with_inner(features=["mqtt", "mqtt"]))
    one("claim-feature-number", "A feature that is a number.", malformed, with_inner(features=[1]))
    one("claim-warning-true", "A number of days that is true.", malformed, with_inner(warnDays=[True]))
    sizes: dict[str, tuple[int, Any]] = {
        "features": (bounds.MAX_FEATURES, lambda size: [f"f{n}" for n in range(size)]),
        "limits": (bounds.MAX_LIMITS, lambda size: {f"l{n}": n for n in range(size)}),
        "trustDomains": (
            bounds.MAX_TRUST_DOMAINS,
            lambda size: ["prod.example.org", *(f"d{n}" for n in range(1, size))],
        ),
        "warnDays": (bounds.MAX_WARNINGS, lambda size: list(range(size))),
        "licensee": (bounds.MAX_TEXT, lambda size: "é" * size),
        "edition": (bounds.MAX_TEXT, lambda size: "x" * size),
        "graceDays": (bounds.MAX_DAYS, lambda size: size),
    }
    for name, (most, made) in sizes.items():
        one(f"claim-{name.lower()}-most", f"As much as {name} may hold.", "Valid", with_inner(**{name: made(most)}))
        one(
            f"claim-{name.lower()}-more",
            f"One more than {name} may hold.",
            malformed,
            with_inner(**{name: made(most + 1)}),
        )
    one("claim-licensee-empty", "An empty name.", malformed, with_inner(licensee=""))


def instants() -> None:
    """The states by time, at their first instants and a second before."""
    names = ("Valid", "ExpiringSoon", "Grace", "Expired")
    firsts = (LICENSE.not_before, LICENSE.not_after - 60 * DAY, LICENSE.not_after, LICENSE.not_after + 30 * DAY)
    for name, before, first in zip(names, ("NotYetValid", *names), firsts, strict=False):
        one(f"time-{name.lower()}-first", f"The first instant of {name}.", name, now=utc_seconds(first))
        comment = f"A second before the first instant of {name}."
        one(f"time-{name.lower()}-before", comment, before, now=utc_seconds(first - SECOND_OF_TIME))


def surroundings() -> None:
    """States that do not come from the time alone."""
    one("limit-reached", "As much is in use as it allows.", "Valid", usage="workloads=500,clusters=3,other=9")
    one("limit-exceeded", "More is in use than it allows.", "OverLimit", usage="workloads=501")
    late = utc_seconds(LICENSE.not_after + 30 * DAY)
    one(
        "limit-exceeded-expired",
        "More is in use, and it has expired: the worse state.",
        "Expired",
        usage="workloads=501",
        now=late,
    )
    grace = utc_seconds(LICENSE.not_after)
    one("limit-exceeded-grace", "More is in use, in its days of grace.", "OverLimit", usage="workloads=501", now=grace)
    one("trust-domain-right", "In its trust domain.", "Valid", **{"trust-domain": "prod.example.org"})
    one("trust-domain-wrong", "In another trust domain.", "WrongTrustDomain", **{"trust-domain": "test.example.org"})
    one(
        "trust-domain-below",
        "A name below it is another one.",
        "WrongTrustDomain",
        **{"trust-domain": "a.prod.example.org"},
    )
    anywhere = envelope(dataclasses.replace(LICENSE, trust_domains=()))
    one(
        "trust-domain-any", "A license for any trust domain.", "Valid", anywhere, **{"trust-domain": "test.example.org"}
    )
    edge = NOW + DAY
    one("clock-at-tolerance", "The clock is a day behind.", "Valid", **{"latest-seen": utc_seconds(edge)})
    one(
        "clock-suspect",
        "The clock is a day and a second behind.",
        "ClockSuspect",
        **{"latest-seen": utc_seconds(edge + SECOND_OF_TIME)},
    )
    one(
        "clock-suspect-not-yet-valid",
        "The clock is years behind, so that the license has not begun.",
        "ClockSuspect",
        now="2020-01-01T00:00:00Z",
        **{"latest-seen": utc_seconds(NOW)},
    )


if __name__ == "__main__":
    main()
