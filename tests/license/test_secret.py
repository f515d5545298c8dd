"""A license as a Secret."""

from __future__ import annotations

import base64
import copy
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.license.errors import LicenseRefused
from svc.license.secret import check_installed, license_secret, secret_name
from svc.license.verification import verify_license
from tests.license.material import KEYS, LICENSE, envelope, text_of


class SecretTests(SynchronousTestCase):
    """What is installed and what is read back."""

    def setUp(self) -> None:
        """Verify a license."""
        self.text = text_of(envelope())
        self.verified = verify_license(self.text.encode(), KEYS)
        self.secret = license_secret(self.verified, "svc-system")

    def test_secret(self) -> None:
        """Type, label, name and the text of the license."""
        data = self.secret.pop("data")
        metadata = {
            "name": f"svc-license-{self.verified.digest[:10]}",
            "namespace": "svc-system",
            "labels": {"svc.internal/license": "true"},
        }
        expected = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "svc.internal/license"}
        self.assertEqual(expected, self.secret)
        self.assertEqual(["license.svc"], list(data))
        again = verify_license(base64.b64decode(data["license.svc"]), KEYS)
        self.assertEqual((LICENSE, self.verified.digest), (again.license, again.digest))
        self.assertEqual(metadata["name"], secret_name(again))

    def test_installed(self) -> None:
        """The Secret that was made, and one with the file as e-mail brought it, are the license."""
        check_installed(self.verified, self.secret)
        quoted = "".join(f"> {line}\r\n" for line in self.text.splitlines())
        self.secret["data"]["license.svc"] = base64.b64encode(quoted.encode()).decode()
        check_installed(self.verified, self.secret)

    def test_other(self) -> None:
        """A Secret of another type, without the label, or with anything else in it is another one."""
        other = base64.b64encode(text_of(envelope(name="license second key")).encode()).decode()
        changes: tuple[tuple[dict[str, Any], str], ...] = (
            ({"type": "Opaque"}, "its type is not svc.internal/license"),
            ({"metadata": {**self.secret["metadata"], "labels": None}}, "no label svc.internal/license: true"),
            ({"data": {"license.svc": other}}, "does not hold this license"),
            ({"data": {"license.svc": "AAAA"}}, "does not hold this license"),
            ({"data": {"license.svc": "A"}}, "does not hold this license"),
            ({"data": {"other": other}}, "does not hold this license"),
            ({"data": None}, "does not hold this license"),
        )
        for change, defect in changes:
            with self.assertRaises(LicenseRefused) as caught:
                check_installed(self.verified, {**copy.deepcopy(self.secret), **change})
            self.assertEqual("license_secret_other", caught.exception.reason)
            self.assertIn(defect, str(caught.exception))
            self.assertIn(f"-n svc-system svc-license-{self.verified.digest[:10]}", caught.exception.hint)
