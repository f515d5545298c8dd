"""The credentials for registries, as configuration files have them."""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.install.registry.credentials import (
    MIRROR,
    REGISTRY,
    Credentials,
    Helper,
    configured_credentials,
    given_credentials,
    helped_credentials,
)
from svc.install.registry.discovery import credential_files
from svc.install.registry.errors import RegistryError
from svc.install.registry.references import Host

HOST = Host("r.example.com", 5000)
CUSTOMER = {"SVC_CUSTOMER_DEPLOYMENT_USERNAME": "customer", "SVC_CUSTOMER_DEPLOYMENT_PASSWORD": "secret"}


_KEYS = st.sampled_from(["auths", "credHelpers", "credsStore", "auth", str(HOST)])
_VALUES = st.none() | st.text(max_size=8) | _KEYS | st.integers(0, 9)
_DOCUMENTS = st.recursive(_VALUES, lambda inner: st.dictionaries(_KEYS, inner), max_leaves=12).map(
    lambda document: json.dumps(document).encode()
)


def entry(username: str, password: str = "secret") -> dict[str, str]:
    """Make an entry of ``auths``."""
    return {"auth": base64.b64encode(f"{username}:{password}".encode()).decode()}


def configured(document: Any, host: Host = HOST, repository: str = "acme/svc") -> Credentials | Helper | None:
    """Look into a configuration file."""
    return configured_credentials(json.dumps(document).encode(), "config.json", host, repository)


class GivenTests(SynchronousTestCase):
    """Flags and variables."""

    def test_flags_before_variables(self) -> None:
        """Flags come first, each by itself; the mirror never gets what is in the variables."""
        for by, username, password, environment, wanted in (
            (REGISTRY, "u", "p", CUSTOMER, ("u", "p")),
            (REGISTRY, "u", "", CUSTOMER, ("u", "secret")),
            (REGISTRY, "", "", CUSTOMER, ("customer", "secret")),
            (REGISTRY, "", "", {}, None),
            (MIRROR, "", "", CUSTOMER, None),
            (MIRROR, "u", "p", CUSTOMER, ("u", "p")),
        ):
            found = given_credentials(HOST, by, username, password, environment)
            self.assertEqual(wanted, found and (found.username, found.password))
            self.assertNotIn("secret", f"{found}{found!r}")

    def test_one_missing(self) -> None:
        """A name without a password, or the reverse, is refused by the names of flag and variable."""
        for by, username, password, reason, names in (
            (REGISTRY, "u", "", "registry_password_missing", "SVC_CUSTOMER_DEPLOYMENT_PASSWORD"),
            (REGISTRY, "", "secret", "registry_username_missing", "--qhx-username"),
            (MIRROR, "u", "", "registry_password_missing", "--mirror-password"),
        ):
            with self.assertRaises(RegistryError) as caught:
                given_credentials(HOST, by, username, password, {})
            self.assertEqual((reason, True), (caught.exception.reason, names in caught.exception.hint))
            self.assertNotIn("secret", f"{caught.exception.evidence}")


class ConfiguredTests(SynchronousTestCase):
    """``config.json`` and ``auth.json``."""

    def test_longest_prefix(self) -> None:
        """Of entries for the host and its repositories the most precise one counts; entries of URLs count too."""
        auths = {
            "r.example.com:5000": entry("host"),
            "r.example.com:5000/acme": entry("acme"),
            "r.example.com:5000/acme/svc": entry("svc"),
            "r.example.com": entry("other port"),
            "https://old.example.com/v1/": entry("old"),
            "https://index.docker.io/v1/": entry("hub"),
        }
        for host, repository, wanted in (
            (HOST, "acme/svc", "svc"),
            (HOST, "acme/svc2", "acme"),
            (HOST, "acme", "acme"),
            (HOST, "acme2", "host"),
            (Host("r.example.com"), "acme", "other port"),
            (Host("old.example.com"), "a", "old"),
            (Host("docker.io"), "a", "hub"),
            (Host("none.example.com"), "a", None),
        ):
            found = configured({"auths": auths}, host, repository)
            self.assertEqual(wanted, getattr(found, "username", None))

    def test_helpers(self) -> None:
        """The host's own helper comes before entries, the common one after; an empty entry names no credentials."""
        auths = {"r.example.com:5000": entry("host")}
        own, common = {"credHelpers": {"r.example.com:5000": "own"}}, {"credsStore": "common"}
        for document, wanted in (
            ({**own, **common, "auths": auths}, "docker-credential-own"),
            ({**common, "auths": auths}, None),
            ({**common, "auths": {"r.example.com:5000": {}}}, "docker-credential-common"),
            ({**common, "credHelpers": {"other": "own"}}, "docker-credential-common"),
        ):
            found = configured(document)
            self.assertEqual(wanted, getattr(found, "program", None))
            self.assertEqual("r.example.com:5000" if wanted else None, getattr(found, "server", None))
        hub = configured(common, Host("docker.io"))
        self.assertEqual(Helper("docker-credential-common", "https://index.docker.io/v1/"), hub)

    def test_tokens(self) -> None:
        """An identity token stands for name and password; a password may have colons; zeros behind it do not count."""
        for given_entry, wanted in (
            ({**entry("u"), "identitytoken": "t"}, ("", "", "t", "")),
            ({"registrytoken": "t"}, ("", "", "", "t")),
            ({"username": "u", "password": "p"}, ("u", "p", "", "")),
            (entry("u", "a:b"), ("u", "a:b", "", "")),
            (entry("u", "p\x00\x00"), ("u", "p", "", "")),
        ):
            found = configured({"auths": {str(HOST): given_entry}})
            assert isinstance(found, Credentials)
            shown = (found.username, found.password, found.identity_token, found.registry_token)
            self.assertEqual(wanted, shown)

    def test_refused(self) -> None:
        """A file of another form is named, and nothing of it is shown."""
        for data in (
            b"{",
            b"[]",
            b'{"auths": 1}',
            b'{"credHelpers": ["secret"]}',
            b'{"credsStore": "../secret"}',
            b'{"credsStore": 1}',
            json.dumps({"auths": {str(HOST): {"auth": "secret!"}}}).encode(),
            json.dumps({"auths": {str(HOST): {"auth": base64.b64encode(b"secret").decode()}}}).encode(),
            json.dumps({"auths": {str(HOST): {"username": ["secret"]}}}).encode(),
        ):
            with self.assertRaises(RegistryError) as caught:
                configured_credentials(data, "config.json", HOST, "a")
            self.assertEqual("registry_credentials_unreadable", caught.exception.reason)
            self.assertIn("config.json", str(caught.exception))
            self.assertNotIn("secret", f"{caught.exception}{caught.exception.evidence}")

    @given(st.binary(max_size=60) | _DOCUMENTS)
    def test_any_octets(self, data: bytes) -> None:
        """Any octets give credentials, a helper, nothing, or an error."""
        with contextlib.suppress(RegistryError):
            found = configured_credentials(data, "config.json", HOST, "a")
            self.assertTrue(found is None or isinstance(found, Credentials | Helper))


class HelperOutputTests(SynchronousTestCase):
    """What helpers write."""

    def test_forms(self) -> None:
        """Name and secret; a name that says that the secret is a token; anything else is nothing."""
        helper = Helper("docker-credential-x", "r.io")
        for output, wanted in (
            (b'{"ServerURL":"r.io","Username":"u","Secret":"s"}\n', ("u", "s", "")),
            (b'{"Username":"<token>","Secret":"s"}', ("", "", "s")),
            (b'{"Username":"u","Secret":""}', None),
            (b'{"Username":1,"Secret":"s"}', None),
            (b"[]", None),
            (b"", None),
        ):
            found = helped_credentials(output, helper)
            self.assertEqual(wanted, found and (found.username, found.password, found.identity_token))


class FilesTests(SynchronousTestCase):
    """Where container tools keep credentials."""

    def test_order(self) -> None:
        """The file of the variable, Docker's, that of the session, and the user's."""
        environment = {"HOME": "/h", "XDG_RUNTIME_DIR": "/run/1", "REGISTRY_AUTH_FILE": "/a.json"}
        wanted = ["/a.json", "/h/.docker/config.json", "/run/1/containers/auth.json", "/h/.config/containers/auth.json"]
        self.assertEqual([Path(each) for each in wanted], credential_files(environment))
        self.assertEqual([Path("/d/config.json")], credential_files({"DOCKER_CONFIG": "/d"}))
        self.assertEqual([], credential_files({}))
