"""
A license as a Secret of Kubernetes: what is installed, and what is read back. Pure; the object is a document.

The text is written anew from the verified envelope, so that what a mail program did to a file is not installed.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from svc import naming
from svc.envelope.claims import utc_seconds
from svc.license.armour import ArmouredText, armoured, read_armour
from svc.license.errors import LicenseRefused
from svc.license.verification import VerifiedLicense

#: Digits of the digest in the name.
_DIGITS: Final = 10


def secret_name(verified: VerifiedLicense) -> str:
    """Return the name of the Secret with a license: the same for each text in which it was sent."""
    return f"{naming.LICENSE_SECRET_PREFIX}{verified.digest[:_DIGITS]}"


def license_secret(verified: VerifiedLicense, namespace: str) -> dict[str, Any]:
    """Return the Secret with a license."""
    found = verified.license
    headers = (("Licensee", found.licensee), ("Expires", utc_seconds(found.not_after)))
    text = armoured(ArmouredText(headers, verified.envelope))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(verified),
            "namespace": namespace,
            "labels": {naming.LABEL_LICENSE: "true"},
        },
        "type": naming.LICENSE_SECRET_TYPE,
        "data": {naming.LICENSE_SECRET_KEY: base64.b64encode(text.encode("utf-8")).decode("ascii")},
    }


def check_installed(verified: VerifiedLicense, secret: Mapping[str, Any]) -> None:
    """
    Compare a Secret of the same name with what installing a license would make.

    Raises:
        LicenseRefused: ``license_secret_other``.
    """
    metadata = secret["metadata"]
    defect = ""
    if secret.get("type") != naming.LICENSE_SECRET_TYPE:
        defect = f"its type is not {naming.LICENSE_SECRET_TYPE}"
    elif (metadata.get("labels") or {}).get(naming.LABEL_LICENSE) != "true":
        defect = f"it has no label {naming.LABEL_LICENSE}: true"
    elif _envelope(secret) != verified.envelope:
        defect = f"its key {naming.LICENSE_SECRET_KEY} does not hold this license"
    if defect:
        names = {"namespace": metadata["namespace"], "name": metadata["name"]}
        raise LicenseRefused("license_secret_other", **names, defect=defect)


def _envelope(secret: Mapping[str, Any]) -> bytes:
    """Return the envelope of the license in a Secret; nothing where there is none that can be read."""
    try:
        return read_armour(base64.b64decode((secret.get("data") or {}).get(naming.LICENSE_SECRET_KEY, ""))).content
    except (LicenseRefused, ValueError):
        return b""
