"""
Writes the vectors of bootstrap packages and federation references, ``federation/``.

Run from the top of the checkout, then look at what changed and run the tests::

    .venv/bin/python -m tests.vectors.make_federation

Keys come from fixed seeds (see ``material.py``); ML-DSA signatures and certificates are new in each run.
"""

from __future__ import annotations

import copy
import dataclasses
from datetime import timedelta
from typing import Any, Final

from svc.envelope.claims import utc_seconds
from svc.envelope.envelope import MAX_ENVELOPE
from svc.envelope.profile import Profile
from svc.federation.endpoint import Endpoint
from svc.federation.package import VerifiedPackage, sign_package
from svc.federation.payload import MAX_CHAINS, MAX_KEYS, MAX_PATH, MAX_REFRESH_HINT, PackageContent, Previous
from svc.federation.reference import FederationReference, checksum_of
from svc.identity import TrustDomain
from svc.strictjson import dumps
from svc.testing.vectors import Vector
from tests.federation.material import (
    DAY,
    ENDPOINT,
    PARTNER,
    PROD,
    claims,
    content,
    forged,
    full_content,
    roots,
    signed,
    signers,
)
from tests.vectors.material import FOLDER, NOW
from tests.vectors.scenario import flip

SECOND: Final = timedelta(seconds=1)
PLAIN: Final = content()
FINGERPRINT: Final = PLAIN.fingerprint


def main() -> None:
    """Write everything."""
    for group in (good, envelopes, roots_and_hints, payloads, bounds, imports, successions, references, fingerprints):
        group()


def write(name: str, comment: str, expect: str, sections: dict[str, bytes], **headers: str) -> None:
    """Write a vector."""
    lines = {
        "expect": expect,
        "now": utc_seconds(NOW),
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }
    (FOLDER / "federation").mkdir(exist_ok=True)
    (FOLDER / "federation" / f"{name}.txt").write_bytes(Vector(name, lines, sections, comment).render())


def octets_of(package: object) -> bytes:
    """The file of a package."""
    if isinstance(package, bytes):
        return package
    return package.package.serialize() if isinstance(package, VerifiedPackage) else dumps(package)


def package(name: str, comment: str, expect: str, found: object, **headers: str) -> None:
    """Write the vector of a package alone."""
    write(f"package-{name}", comment, expect, {"package": octets_of(found)}, kind="package", **headers)


def changed(**changes: object) -> dict[str, Any]:
    """Sign other claims; those whose value is ... are left out."""
    return forged({name: value for name, value in {**claims(PLAIN), **changes}.items() if value is not ...})


def inner(**changes: object) -> dict[str, Any]:
    """Sign other members of ``svc``; those whose value is ... are left out."""
    found = {**claims(PLAIN)["svc"], **changes}
    return changed(svc={name: value for name, value in found.items() if value is not ...})


def within(member: str, found: PackageContent = PLAIN, **changes: object) -> dict[str, Any]:
    """Sign other members of an object in ``svc``."""
    members = claims(found)
    object_ = {**members["svc"][member], **changes}
    members["svc"][member] = {name: value for name, value in object_.items() if value is not ...}
    return forged(members)


def good() -> None:
    """Packages that are accepted."""
    full = sign_package(full_content(), signers(), endpoint=ENDPOINT)
    spelled = {"fingerprint": FINGERPRINT.base32, "ssh": FINGERPRINT.ssh, "digits": FINGERPRINT.digits}
    package("good", "A package as it is exported.", "ok", full, **spelled)
    package("good-no-certificates", "All roots are revoked, and there is no hint.", "ok", signed())
    p384 = dataclasses.replace(PLAIN, roots=roots(1, "ES384"))
    package("good-es384", "The classical root is P-384.", "ok", sign_package(p384, signers(1, "ES384")))
    package("good-successor", "New roots, signed by those before as well.", "ok", signed(2, introduced=True))
    package("good-later", "The same sequence, signed anew.", "ok", signed(2, issued=NOW + DAY))
    reversed_ = forged(PLAIN)
    reversed_["signatures"].reverse()
    package("good-reversed", "The order of the signatures carries no meaning.", "ok", reversed_)
    package("good-unknown-member", "Unknown members are ignored.", "ok", inner(seats=7))
    package("good-controls", "One of them has control characters.", "ok", inner(note="\x1b[2J"))
    chains = [*claims(full_content())["svc"]["chains"][:1], {"purpose": "tomorrow", "x5c": 7}]
    members = claims(full_content())
    members["svc"]["chains"] = chains
    package("good-unknown-purpose", "A chain for a purpose that is not known is ignored.", "ok", forged(members))
    strict = dataclasses.replace(PLAIN, min_profile=Profile.CNSA2)
    package("good-cnsa2", "The strongest profile is demanded.", "ok", forged(strict))
    short = dataclasses.replace(PLAIN, expires=NOW + SECOND)
    package("good-one-second", "The shortest life.", "ok", forged(short))


def envelopes() -> None:
    """Envelopes that are refused."""
    package("no-json", "No JSON.", "malformed", b"apiVersion: v1\n")
    package("empty", "An empty file.", "malformed", b"")
    package("too-large", "One octet too many.", "too_large", dumps(forged(PLAIN)).ljust(MAX_ENVELOPE + 1))
    package("at-limit", "As many octets as are accepted.", "ok", dumps(forged(PLAIN)).ljust(MAX_ENVELOPE))
    package("license-type", "The type of a license.", "wrong_type", forged(PLAIN, typ="svc-license+jws"))
    package(
        "crit-extra",
        "Another critical member.",
        "critical_unknown",
        forged(PLAIN, protected={"crit": ["svc-set", "x"]}),
    )
    package("alg-none", "No algorithm.", "alg_not_allowed", forged(PLAIN, protected_of={"Ed25519": {"alg": "none"}}))
    one = forged(PLAIN)
    one["signatures"].pop()
    package("stripped", "The post-quantum signature was removed.", "set_mismatch", one)
    package(
        "classical-only",
        "Never had a post-quantum signature.",
        "hybrid_incomplete",
        forged(PLAIN, signers=signers()[:1]),
    )
    package(
        "post-quantum-only",
        "Never had a classical signature.",
        "hybrid_incomplete",
        forged(PLAIN, signers=signers()[1:]),
    )
    package("es256", "Signed by P-256.", "alg_not_allowed", forged(PLAIN, signers=signers(1, "ES256")))
    weak = forged(PLAIN, signers=signers(1, "Ed25519", "ML-DSA-44"))
    package("ml-dsa-44", "Signed by ML-DSA-44.", "alg_not_allowed", weak)
    other = forged(PLAIN, signers=signers(1, "Ed25519", "ML-DSA-87"))
    package("ml-dsa-87", "Signed by ML-DSA-87, which is no federation root.", "alg_not_allowed", other)
    package("no-kid", "Without key identifiers.", "malformed", forged(PLAIN, without=("kid",)))
    certificates = claims(full_content())["svc"]["chains"][0]["x5c"]
    package("certificates", "With certificates beside the signature.", "malformed", forged(PLAIN, x5c=certificates))
    for index, alg in enumerate(("Ed25519", "ML-DSA-65")):
        broken = forged(PLAIN)
        broken["signatures"][index]["signature"] = flip(broken["signatures"][index]["signature"])
        package(f"signature-{alg.lower()}", f"One bit of the {alg} signature.", f"signature_invalid{{{alg}}}", broken)
    moved = forged(PLAIN, other_payload=b"{}")
    package("other-payload", "The signatures of another payload.", "signature_invalid{Ed25519}", moved)


def roots_and_hints() -> None:
    """Whose keys signed, and what nobody signs."""
    package("other-roots", "Signed by other keys than its roots.", "root_mismatch", forged(PLAIN, signers=signers(2)))
    mixed = (signers(1)[0], signers(2)[1])
    package("mixed-roots", "One of two keys is another's.", "root_mismatch", forged(PLAIN, signers=mixed))
    p384 = dataclasses.replace(PLAIN, roots=roots(1, "ES384"))
    package("other-kind", "The root is P-384, the signature Ed25519.", "root_mismatch", forged(p384))
    for name, hint, expect in (
        ("name", {"m2mEndpoint": "m2m.prod.example.org"}, "ok"),
        ("ipv6", {"m2mEndpoint": "[2001:db8::1]:31443"}, "ok"),
        ("null", {"m2mEndpoint": None}, "ok"),
        ("other", {"tor": "x"}, "ok"),
        ("scheme", {"m2mEndpoint": "https://m2m.prod.example.org"}, "bad_endpoint"),
        ("port", {"m2mEndpoint": "m2m.prod.example.org:65536"}, "bad_endpoint"),
        ("controls", {"m2mEndpoint": "m2m\x1b[2J"}, "bad_endpoint"),
        ("number", {"m2mEndpoint": 7}, "malformed"),
        ("text", "m2m.prod.example.org", "malformed"),
    ):
        package(f"hint-{name}", "A hint, which nobody signs.", expect, {**forged(PLAIN), "hints": hint})
    second = signed(2, introduced=True).package.envelope.to_object()
    entries = second["previousSignatures"]
    assert isinstance(entries, list)
    first = {**forged(PLAIN), "previousSignatures": entries}
    package("previous-of-first", "The first roots have none before them.", "malformed", first)
    package(
        "previous-one", "One signature of the roots before.", "malformed", {**second, "previousSignatures": entries[:1]}
    )
    package("previous-text", "No array.", "malformed", {**second, "previousSignatures": "x"})
    twice = {**second, "previousSignatures": [entries[0], entries[0]]}
    package("previous-twice", "The same signature twice.", "set_mismatch", twice)
    typed = forged(content(2), 1, typ="svc-license+jws")["signatures"]
    package("previous-type", "Signatures of another type.", "wrong_type", {**second, "previousSignatures": typed})


def payloads() -> None:
    """Claims that are refused."""
    package("version-2", "A later version.", "unsupported_version", changed(v=2))
    package(
        "duplicate", "A member twice.", "malformed", forged(PLAIN.to_payload().replace(b'{"v":1,', b'{"v":1,"v":1,'))
    )
    for name in ("v", "iss", "iat", "exp", "svc"):
        package(f"no-{name}", f"Without {name}.", "malformed", changed(**{name: ...}))
    for name in ("trustDomain", "sequence", "roots", "fingerprint", "chains", "bundle", "pqBundle", "m2m", "policy"):
        package(f"no-{name.lower()}", f"Without svc.{name}.", "malformed", inner(**{name: ...}))
    package(
        "issuer-other",
        "An issuer of another domain.",
        "issuer_mismatch",
        changed(iss=f"spiffe://{PARTNER}/svc/manager"),
    )
    package(
        "fingerprint-other",
        "The fingerprint of other roots.",
        "malformed",
        inner(fingerprint=roots(2).fingerprint(PROD).grouped),
    )
    package("fingerprint-plain", "The fingerprint without groups.", "malformed", inner(fingerprint=FINGERPRINT.base32))
    package("trust-domain-upper", "No trust domain.", "malformed", inner(trustDomain=str(PROD).upper()))
    package("exp-at-iat", "It never counts.", "malformed", changed(exp=claims(PLAIN)["iat"]))
    package("exp-year-9999", "A life to the end of the calendar.", "malformed", changed(exp=253_402_300_799))
    late = changed(iat=253_402_300_799 - 5, exp=253_402_300_799)
    package("year-9999", "The end of the calendar.", "ok", late)
    found = claims(PLAIN)["svc"]["roots"]
    second = claims(content(2))["svc"]["roots"]
    package("roots-one", "One root.", "malformed", inner(roots=found[:1]))
    package("roots-three", "Three roots.", "malformed", inner(roots=[*found, second[0]]))
    package("roots-two-classical", "Two roots of one kind.", "malformed", inner(roots=[found[0], second[0]]))
    package(
        "roots-alg", "A root under another name.", "malformed", inner(roots=[{**found[0], "alg": "ES384"}, found[1]])
    )
    package("roots-no-key", "No key.", "malformed", inner(roots=[{**found[0], "spki": "AAAA"}, found[1]]))
    unpadded = {**found[0], "spki": found[0]["spki"].rstrip("=") + "A"}
    package("roots-base64", "Base64 that is not canonical.", "malformed", inner(roots=[unpadded, found[1]]))
    package("sequence-0", "Sequences begin with 1.", "malformed", inner(sequence=0))
    package("sequence-2", "Roots before it have to be named.", "malformed", inner(sequence=2))
    before = claims(content(2))["svc"]["previous"]
    package("previous-first", "There is nothing before the first.", "malformed", inner(previous=before))
    for name, previous in (
        ("gap", {**before, "sequence": 1}),
        ("same", {**before, "sequence": 3}),
        ("digest", {**before, "sequence": 2, "digest": "AAAA"}),
    ):
        members = claims(content(3))
        members["svc"]["previous"] = previous
        package(f"previous-{name}", "What is before does not fit.", "malformed", forged(members, 3))


def bounds() -> None:
    """Certificates, keys, endpoint and policy."""
    full = claims(full_content())
    chain = full["svc"]["chains"][0]

    def with_svc(**changes: object) -> dict[str, Any]:
        members = copy.deepcopy(full)
        members["svc"].update(changes)
        return forged(members)

    package("chains-most", "As many chains as are accepted.", "ok", with_svc(chains=[chain] * MAX_CHAINS))
    package("chains-more", "One chain too many.", "malformed", with_svc(chains=[chain] * (MAX_CHAINS + 1)))
    package("chain-empty", "A chain without certificates.", "malformed", with_svc(chains=[{**chain, "x5c": []}]))
    package("chain-long", "Nine certificates.", "malformed", with_svc(chains=[{**chain, "x5c": chain["x5c"] * 9}]))
    package("chain-no-certificate", "No certificate.", "malformed", with_svc(chains=[{**chain, "x5c": ["AAAA"]}]))
    stranger = {**chain, "purpose": "svc-pq"}
    package("chain-root-other", "It leads to no root of its bundle.", "malformed", with_svc(chains=[stranger]))
    keys = full["svc"]["bundle"]["keys"]
    jwt = keys[1]
    package("keys-most", "As many keys as are accepted.", "ok", within("bundle", keys=[jwt] * MAX_KEYS))
    package("keys-more", "One key too many.", "malformed", within("bundle", keys=[jwt] * (MAX_KEYS + 1)))
    package("key-private", "A private JWT key.", "malformed", within("bundle", keys=[{**jwt, "d": "x"}]))
    package("key-symmetric", "A symmetric key.", "malformed", within("bundle", keys=[{"kty": "oct", "k": "x"}]))
    package(
        "key-no-certificate", "A root that is none.", "malformed", within("bundle", keys=[{**keys[0], "x5c": ["AAAA"]}])
    )
    package(
        "hint-seconds-most", "The longest refresh hint.", "ok", within("bundle", spiffe_refresh_hint=MAX_REFRESH_HINT)
    )
    more = within("bundle", spiffe_refresh_hint=MAX_REFRESH_HINT + 1)
    package("hint-seconds-more", "A second more.", "malformed", more)
    package("hint-seconds-0", "It would be fetched all the time.", "malformed", within("bundle", spiffe_refresh_hint=0))
    pq_key = full["svc"]["pqBundle"]["keys"][0]
    package(
        "pq-key-private", "A private post-quantum key.", "malformed", within("pqBundle", keys=[{**pq_key, "priv": "x"}])
    )
    package(
        "pq-key-other",
        "The key is not that of the certificate.",
        "malformed",
        within("pqBundle", keys=[{**pq_key, "pub": "AAAA"}]),
    )
    package("pq-sequence", "No sequence.", "malformed", within("pqBundle", sequence=...))
    package(
        "m2m-other-domain",
        "An endpoint of another domain.",
        "malformed",
        within("m2m", spiffeID=f"spiffe://{PARTNER}/svc/m2m"),
    )
    package("m2m-profile", "No profile that is known.", "malformed", within("m2m", profiles=["https_web"]))
    paths = claims(PLAIN)["svc"]["m2m"]["paths"]
    for name, path, expect in (
        ("most", "/" + "a" * (MAX_PATH - 1), "ok"),
        ("more", "/" + "a" * MAX_PATH, "malformed"),
        ("dots", "/v1/../admin", "malformed"),
        ("query", "/v1/bundle?x", "malformed"),
        ("relative", "v1/bundle", "malformed"),
    ):
        package(f"path-{name}", "A path at the endpoint.", expect, within("m2m", paths={**paths, "bundle": path}))
    package("profile-unknown", "A profile that is not known.", "malformed", within("policy", minProfile="strong"))


def imports() -> None:
    """What an administrator may import."""
    found = sign_package(PLAIN, signers(), endpoint=ENDPOINT)
    reference = str(found.package.reference)
    other = FederationReference(PARTNER, FINGERPRINT)

    def one(name: str, comment: str, expect: str, package: object = found, **headers: str) -> None:
        write(
            f"import-{name}",
            comment,
            expect,
            {"package": octets_of(package)},
            kind="import",
            **{"own": str(PARTNER), **headers},
        )

    one("vetted", "Nothing was expected.", "ok")
    for name, text in (
        ("base32", FINGERPRINT.base32),
        ("groups", FINGERPRINT.grouped.upper()),
        ("ssh", FINGERPRINT.ssh),
        ("digits", FINGERPRINT.digits),
        ("reference", reference),
    ):
        one(f"expected-{name}", "The fingerprint in one of its spellings.", "ok", expected=text)
    wrong = roots(2).fingerprint(PROD)
    for name, text in (("base32", wrong.base32), ("ssh", wrong.ssh), ("digits", wrong.digits)):
        one(f"mismatch-{name}", "The fingerprint of other roots.", "fingerprint_mismatch", expected=text)
    one("wrong-trust-domain", "A reference for another domain.", "wrong_trust_domain", expected=str(other))
    one("own", "The own package.", "own_trust_domain", own=str(PROD))
    one("expired", "At its end.", "package_expired", now=utc_seconds(PLAIN.expires))
    one("last-second", "A second before its end.", "ok", now=utc_seconds(PLAIN.expires - SECOND))
    one("leeway", "The peer's clock is a minute ahead.", "ok", now=utc_seconds(NOW - 60 * SECOND))
    one("future", "It is more than a minute ahead.", "package_not_yet_valid", now=utc_seconds(NOW - 61 * SECOND))
    one(
        "mismatch-and-expired",
        "Who it is comes first.",
        "fingerprint_mismatch",
        now="2030-01-01T00:00:00Z",
        expected=wrong.base32,
    )
    for state in ("working", "broken", "expired", "unverifiable"):
        one(f"existing-{state}", "There is a relationship.", "already_federated", existing=state)
        working = state == "working"
        expect = "continuity_working" if working else "ok"
        one(f"rebootstrap-{state}", "Another start.", expect, existing=state, options="rebootstrap")
        one(f"force-{state}", "A start in any state.", "ok", existing=state, options="force")
    one("rebootstrap-none", "There is nothing to replace.", "ok", options="rebootstrap")


def successions() -> None:
    """What may replace the pinned package, and the continuity after it."""
    first, second, third = (
        signed(),
        signed(2, introduced=True, issued=NOW + DAY),
        signed(3, introduced=True, issued=NOW + 2 * DAY),
    )

    def one(
        name: str, comment: str, expect: str, pinned: object, served: object, *links: VerifiedPackage, **headers: str
    ) -> None:
        sections = {"pinned": octets_of(pinned), "served": octets_of(served)}
        sections |= {f"link {each.content.sequence}": octets_of(each) for each in links}
        write(
            f"succession-{name}",
            comment,
            expect,
            sections,
            kind="succession",
            **{"now": utc_seconds(NOW + 3 * DAY), **headers},
        )

    daily = signed(issued=NOW + DAY)
    one("same", "The pinned package itself.", "working", first, first)
    one("daily", "Signed anew by the same roots.", "working", first, daily)
    one("next", "New roots, signed by those before.", "working", first, second)
    one(
        "next-daily",
        "New roots, signed anew without those before.",
        "working",
        first,
        signed(2, issued=NOW + 2 * DAY),
        second,
    )
    one("chain", "Two sets of roots later.", "working", first, third, second)
    one(
        "chain-expired-link",
        "What is on the way may have expired.",
        "working",
        first,
        signed(2, issued=NOW + 40 * DAY),
        second,
        now=utc_seconds(NOW + 41 * DAY),
    )
    one(
        "pinned-expired",
        "The pinned package has expired.",
        "working",
        first,
        signed(issued=NOW + 40 * DAY),
        now=utc_seconds(NOW + 41 * DAY),
    )
    one("rollback-iat", "An earlier content of the same sequence.", "broken package_rolled_back", daily, first)
    one(
        "rollback-sequence",
        "A lower sequence, made later.",
        "broken package_rolled_back",
        second,
        signed(issued=NOW + 2 * DAY),
    )
    one("rollback-next", "New roots, made earlier.", "broken package_rolled_back", signed(issued=NOW + 2 * DAY), second)
    one("link-missing", "The package in between is not served.", "unverifiable packages_missing", first, third)
    one(
        "introduction-missing",
        "The package that introduced the roots is not served.",
        "unverifiable packages_missing",
        first,
        signed(2, issued=NOW + 2 * DAY),
    )
    one(
        "forged",
        "Other roots with the same sequence.",
        "broken successor_invalid",
        first,
        sign_package(dataclasses.replace(PLAIN, roots=roots(7), issued=NOW + DAY), signers(7)),
    )
    claimed = forged(content(2, issued=NOW + DAY), 2)
    by_stranger = forged(content(2, issued=NOW + DAY), 7)["signatures"]
    one(
        "forged-previous",
        "Somebody else signed as the roots before.",
        "broken root_mismatch",
        first,
        {**claimed, "previousSignatures": by_stranger},
    )
    bad = copy.deepcopy(second.package.envelope.to_object())
    entries: Any = bad["previousSignatures"]
    entries[1]["signature"] = flip(entries[1]["signature"])
    one(
        "previous-signature",
        "One bit of a signature of the roots before.",
        "broken signature_invalid{ML-DSA-65}",
        first,
        bad,
    )
    elsewhere = dataclasses.replace(
        content(2, issued=NOW + DAY),
        previous=Previous(1, roots(7).fingerprint(PROD)),
    )
    one(
        "digest-other",
        "It names other roots before it.",
        "broken successor_invalid",
        first,
        sign_package(elsewhere, signers(2), previous=signers(1)),
    )
    one("other-domain", "Another trust domain.", "broken wrong_trust_domain", first, signed(trust_domain=PARTNER))
    one(
        "served-expired",
        "The peer makes no new packages.",
        "expired package_expired",
        first,
        first,
        now=utc_seconds(NOW + 30 * DAY),
    )
    one("future", "Its clock is ahead.", "unverifiable package_not_yet_valid", first, signed(issued=NOW + 4 * DAY))
    one("version", "A version that is not known.", "unverifiable unsupported_version", first, changed(v=2))
    one("stripped", "One signature alone.", "broken hybrid_incomplete", first, forged(PLAIN, signers=signers()[:1]))
    one("garbage", "No package at all.", "broken malformed", first, b"<html>")


def references() -> None:
    """References, good and damaged."""
    plain, full = FederationReference(PROD, FINGERPRINT), FederationReference(PROD, FINGERPRINT, ENDPOINT)

    def one(name: str, comment: str, expect: str, text: object, **headers: str) -> None:
        write(f"reference-{name}", comment, expect, {"reference": str(text).encode()}, kind="reference", **headers)

    def sealed(body: str) -> str:
        return f"{body}~{checksum_of(body)}"

    one("plain", "Without an endpoint.", "ok", plain, canonical="true")
    one("endpoint", "With host and port.", "ok", full, canonical="true")
    one(
        "host",
        "With a host alone.",
        "ok",
        FederationReference(PROD, FINGERPRINT, Endpoint("m2m.prod.example.org")),
        canonical="true",
    )
    one(
        "ipv6",
        "With an IPv6 address.",
        "ok",
        FederationReference(PROD, FINGERPRINT, Endpoint("2001:db8::1", 443)),
        canonical="true",
    )
    one(
        "onion",
        "With an onion address.",
        "ok",
        FederationReference(PROD, FINGERPRINT, Endpoint("a2" * 28 + ".onion", 443)),
        canonical="true",
    )
    longest = FederationReference(TrustDomain.parse("a" * 255), FINGERPRINT, Endpoint(".".join(["b" * 63] * 3), 65535))
    one("long", "The longest trust domain.", "ok", longest, canonical="true")
    one("spaces", "White space around it.", "ok", f"  {full}\r\n")
    one("upper-host", "The host in upper case.", "ok", sealed(f"svcfed1:{PROD}:{FINGERPRINT.base32}@M2M.EXAMPLE"))
    one("empty", "Nothing.", "bad_prefix", "")
    one("no-prefix", "The prefix is missing.", "bad_prefix", str(full).partition(":")[2])
    one("upper-prefix", "The prefix in upper case.", "bad_prefix", str(full).upper())
    one("version-2", "A later version.", "unsupported_version", str(full).replace("svcfed1", "svcfed2"))
    one(
        "version-01",
        "Another spelling of the version.",
        "unsupported_version",
        str(full).replace("svcfed1", "svcfed01"),
    )
    one("no-checksum", "The end was cut off.", "bad_checksum", str(full).partition("~")[0])
    one("checksum-short", "The last character was cut off.", "bad_checksum", str(full)[:-1])
    one(
        "character",
        "One character of the fingerprint was changed.",
        "bad_checksum",
        str(full).replace(FINGERPRINT.base32[:5], "aaaaa"),
    )
    one("wrapped", "A line break in the middle.", "bad_checksum", str(full)[:40] + "\n" + str(full)[40:])
    one("too-long", "More characters than any reference.", "bad_checksum", sealed(f"svcfed1:{PROD}:" + "a" * 1024))
    one("trust-domain-upper", "No trust domain.", "bad_trust_domain", sealed(f"svcfed1:PROD:{FINGERPRINT.base32}"))
    one("trust-domain-empty", "No trust domain.", "bad_trust_domain", sealed(f"svcfed1::{FINGERPRINT.base32}"))
    one(
        "trust-domain-long",
        "A trust domain that is too long.",
        "bad_trust_domain",
        sealed(f"svcfed1:{'a' * 256}:{FINGERPRINT.base32}"),
    )
    one("no-fingerprint", "No fingerprint.", "bad_fingerprint", sealed(f"svcfed1:{PROD}"))
    one("fingerprint-short", "51 characters.", "bad_fingerprint", sealed(f"svcfed1:{PROD}:{FINGERPRINT.base32[:-1]}"))
    one(
        "fingerprint-groups",
        "The fingerprint in groups.",
        "bad_fingerprint",
        sealed(f"svcfed1:{PROD}:{FINGERPRINT.grouped}"),
    )
    one(
        "fingerprint-spare-bits",
        "Spare bits that are not zero.",
        "bad_fingerprint",
        sealed(f"svcfed1:{PROD}:{FINGERPRINT.base32[:-1]}z"),
    )
    for name, endpoint in (
        ("empty", ""),
        ("port-0", "m2m.example:0"),
        ("port-65536", "m2m.example:65536"),
        ("port-empty", "m2m.example:"),
        ("scheme", "https://m2m.example"),
        ("zone", "[fe80::1%25eth0]:443"),
        ("ipv6-bare", "2001:db8::1"),
        ("ipv4-short", "10.1:443"),
        ("userinfo", "a@m2m.example"),
        ("label-long", "a" * 64 + ".example"),
    ):
        one(
            f"endpoint-{name}",
            "No endpoint.",
            "bad_endpoint",
            sealed(f"svcfed1:{PROD}:{FINGERPRINT.base32}@{endpoint}"),
        )


def fingerprints() -> None:
    """What a person may give as the expected fingerprint."""

    def one(name: str, comment: str, expect: str, text: object) -> None:
        write(
            f"fingerprint-{name}",
            comment,
            expect,
            {"text": str(text).encode()},
            kind="fingerprint",
            fingerprint=FINGERPRINT.base32,
        )

    one("base32", "52 characters.", "ok", FINGERPRINT.base32)
    one("groups", "13 groups of 4.", "ok", FINGERPRINT.grouped)
    one(
        "blanks",
        "Groups with blanks, in upper case, on two lines.",
        "ok",
        FINGERPRINT.grouped.replace("-", " ", 6).replace("-", "\n").upper(),
    )
    one("ssh", "As SSH writes it.", "ok", FINGERPRINT.ssh)
    one("ssh-padded", "With the padding of base64.", "ok", FINGERPRINT.ssh + "=")
    one("digits", "12 groups of 5 digits.", "ok", FINGERPRINT.digits)
    one("digits-plain", "60 digits.", "ok", FINGERPRINT.digits.replace(" ", ""))
    one("digits-dashes", "Groups of digits with dashes.", "ok", FINGERPRINT.digits.replace(" ", "-"))
    one("reference", "A whole reference.", "ok", FederationReference(PROD, FINGERPRINT, ENDPOINT))
    one("other", "Other roots.", "mismatch", roots(2).fingerprint(PROD))
    one("other-domain", "The same roots for another trust domain.", "mismatch", roots(1).fingerprint(PARTNER).digits)
    digits = FINGERPRINT.digits
    swapped = " ".join([digits.split()[1], digits.split()[0], *digits.split()[2:]])
    one("digits-swapped", "Two groups in the wrong order.", "mismatch", swapped)
    one("empty", "Nothing.", "bad_fingerprint", "")
    one("hexadecimal", "Hexadecimal digits.", "bad_fingerprint", FINGERPRINT.octets.hex())
    one("short", "51 characters.", "bad_fingerprint", FINGERPRINT.base32[:-1])
    one("spare-bits", "Spare bits that are not zero.", "bad_fingerprint", FINGERPRINT.base32[:-1] + "z")
    one("digits-short", "11 groups.", "bad_fingerprint", digits.rpartition(" ")[0])
    one("ssh-short", "Base64 of 31 octets.", "bad_fingerprint", FINGERPRINT.ssh[:-2])
    one("ssh-alphabet", "Another alphabet.", "bad_fingerprint", "SHA256:" + "-" * 43)
    one(
        "reference-damaged",
        "A reference that was damaged.",
        "bad_checksum",
        str(FederationReference(PROD, FINGERPRINT))[:-1],
    )


if __name__ == "__main__":
    main()
