"""Tests of svc.authority.config."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.authority.config import AuthoritySettings, load_settings
from svc.identity import SpiffeID
from svc.settings import ConfigInvalid, ConfigUnreadable, HostPort

MINIMAL: Mapping[str, Any] = {"trustDomain": "example.org", "socket": "unix:///run/svc/agent.sock"}
ENTRY: Mapping[str, Any] = {"spiffeID": "spiffe://example.org/a", "uid": 1000}
#: An entry with an executable and without a user.
PROGRAM: Mapping[str, Any] = {"spiffeID": "spiffe://example.org/a"}
PQ: Mapping[str, Any] = {"socket": "unix:///run/svc/pq.sock"}


class ConfigCase(SynchronousTestCase):
    """A configuration as a file."""

    def load(self, **keys: Any) -> AuthoritySettings:
        """Load the minimal configuration with further keys; None removes one."""
        whole = {name: value for name, value in {**MINIMAL, **keys}.items() if value is not None}
        return self.load_text(json.dumps(whole))

    def load_text(self, text: str) -> AuthoritySettings:
        path = Path(self.mktemp())
        path.write_text(text)
        return load_settings(path)

    def problems(self, **keys: Any) -> dict[str, str]:
        """The problems of an invalid configuration, by key."""
        error = self.assertRaises(ConfigInvalid, self.load, **keys)
        return {problem.key: str(problem) for problem in error.problems}


class GoodTests(ConfigCase):
    """Accepted configurations."""

    def test_minimal(self) -> None:
        """Two keys are enough; everything else has a safe default."""
        settings = self.load()
        self.assertEqual(settings.socket, "/run/svc/agent.sock")
        self.assertEqual((settings.socketMode, settings.socketGroup), (0o600, None))
        self.assertEqual(settings.pq_bundle_path, "/run/svc/pq-bundle.json")
        self.assertEqual(settings.archive_path, "/run/svc/bundle-archive.json")
        self.assertEqual(str(settings.issuer_id), "spiffe://example.org/svc/authority")
        self.assertFalse(settings.pq_only)
        self.assertEqual(HostPort("127.0.0.1", 9904), settings.adminAddr)

    def test_without_pages(self) -> None:
        """``adminAddr`` is disabled as in the other processes."""
        for value in ("0", "", 0):
            self.assertIsNone(self.load(adminAddr=value).adminAddr)
        self.assertIn("expected an address host:port", self.problems(adminAddr="9904")["adminAddr"])

    def test_full_yaml(self) -> None:
        """The configuration of the documentation is valid."""
        text = (Path(__file__).parents[2] / "docs" / "authority.md").read_text()
        example = text.split("```yaml")[1].split("```")[0]
        # The page tells to make the group.
        settings = self.load_text(example.replace("socketGroup: svc", "socketGroup: root"))
        assert settings.pqIssuer is not None
        self.assertEqual((settings.socketMode, settings.pqIssuer.socketMode), (0o660, 0o660))
        entry = settings.registry.entries[0]
        self.assertEqual(str(entry.spiffe_id), "spiffe://prod.example.org/ns/pay/sa/api")
        self.assertTrue(settings.federatesWith)

    def test_federation(self) -> None:
        """The configuration of the page about two machines is valid, and its socket is one of the process."""
        text = (Path(__file__).parents[2] / "docs" / "federation.md").read_text()
        settings = self.load_text(text.split("```yaml")[1].split("```")[0])
        self.assertIn("/run/svc/federation.sock", settings.socket_paths)
        self.assertIn("/run/svc/federation.sock", settings.made_paths)

    def test_pq_only_yaml(self) -> None:
        """The second example of the documentation is a PQ issuer only."""
        text = (Path(__file__).parents[2] / "docs" / "authority.md").read_text()
        settings = self.load_text(text.split("```yaml")[2].split("```")[0])
        self.assertTrue(settings.pq_only)

    def test_modes(self) -> None:
        """A mode is read with quotes and without, and nothing wider than the three is accepted for either socket."""
        for text in ("'0600'", '"0600"', "600"):
            found = self.load_text(f"trustDomain: example.org\nsocket: unix:///run/a.sock\nsocketMode: {text}\n")
            self.assertEqual(found.socketMode, 0o600)
        for mode in ("0600", "0660", "0666"):
            group = "root" if mode == "0660" else None
            pq = self.load(pqIssuer={**PQ, "socketMode": mode, "socketGroup": group}).pqIssuer
            self.assertEqual(pq and pq.socketMode, int(mode, 8))
        for mode in ("0644", "0667", "0777", "0600 ", "", 0o660):
            self.assertEqual(["pqIssuer.socketMode"], list(self.problems(pqIssuer={**PQ, "socketMode": mode})))

    def test_names_of_users(self) -> None:
        """Users and groups may be given by name."""
        entry = self.load(entries=[{"spiffeID": "spiffe://example.org/a", "uid": "root", "gid": "root"}]).entries[0]
        self.assertEqual((entry.uid, entry.gid), (0, 0))

    def test_entry(self) -> None:
        """An entry has its selectors, lifetimes and hint."""
        made = self.load(entries=[{**ENTRY, "executable": "/bin/sh", "ttl": "2m", "jwtTtl": "90s", "hint": "x"}])
        entry = made.registry.entries[0]
        self.assertEqual((entry.selectors.uid, entry.selectors.executable), (1000, "/bin/sh"))
        self.assertEqual((entry.ttl.total_seconds(), entry.jwt_ttl.total_seconds(), entry.hint), (120, 90, "x"))
        group = self.load(entries=[{**PROGRAM, "gid": 7, "executable": "/bin/sh"}]).registry.entries[0].selectors
        self.assertEqual((group.uid, group.gid, group.executable), (None, 7, "/bin/sh"))


class FederationRuleTests(ConfigCase):
    """What goes together with ``federation``."""

    def test_rules(self) -> None:
        """It needs a folder for its keys, a socket of its own, roots that peers accept, and no SPIRE."""
        given: dict[str, Any] = {"federation": {"socket": "unix:///run/svc/federation.sock"}, "dataDir": "/var/keys"}
        self.assertIsNotNone(self.load(**given).federation)
        for changed, key in (
            ({"dataDir": None}, "dataDir"),
            ({"federation": {"socket": MINIMAL["socket"]}}, "federation.socket"),
            ({"federation": PQ, "pqIssuer": PQ}, "federation.socket"),
            ({"keys": {"caAlgorithm": "ML-DSA-65"}}, "keys.caAlgorithm"),
            ({"socket": None, "workloadApi": "unix:///run/spire.sock", "pqIssuer": PQ}, "federation"),
        ):
            self.assertEqual({key}, set(self.problems(**{**given, **changed})), key)


class BadTests(ConfigCase):
    """Each defect is reported with its key and what was expected."""

    def test_values(self) -> None:
        """Values that a key does not allow are refused."""
        cases: list[tuple[str, Any, str]] = [
            ("trustDomain", "Example.org", "trust domain"),
            ("trustDomain", 7, "trust domain"),
            ("socket", "tcp://1.2.3.4:5", "unix:///"),
            ("socket", "unix:///" + "a" * 120, "unix:///"),
            ("socketMode", "0644", "0600"),
            ("socketMode", 384, "0600"),
            ("socketMode", "0777", "0600"),
            ("socketGroup", "no-such-group-here", "group"),
            ("socketGroup", -1, "group"),
            ("bundleFile", "bundle.json", "absolute path"),
            ("unknown", 1, "no such key"),
            ("keys", {"caAlgorithm": "DSA"}, "ECDSA-P256"),
            ("keys", {"caTtl": 5}, "duration"),
            ("pqIssuer", {"socket": "x"}, "unix:///"),
            ("pqIssuer", {"listen": "nowhere"}, "host:port"),
            ("openBundles", "yes", "true or false"),
        ]
        for key, value, expected in cases:
            found = self.problems(**{key: value})
            self.assertEqual(len(found), 1, (key, value, found))
            ((shown_key, text),) = found.items()
            self.assertTrue(shown_key.startswith(key), shown_key)
            self.assertIn(expected, text)

    def test_entries(self) -> None:
        """An entry needs an identity of the own trust domain, a user or group, and lifetimes in range."""
        cases: list[tuple[dict[str, Any], str, str]] = [
            ({"uid": 1}, "entries[0].spiffeID", "missing"),
            ({"spiffeID": "spiffe://example.org/a"}, "entries[0].uid", "uid or gid as well"),
            ({**PROGRAM, "executable": "/bin/sh"}, "entries[0].executable", "/bin/sh: expected uid or gid as well"),
            (
                {**PROGRAM, "executable": "/bin/sh"},
                "entries[0].executable",
                "of the user of spiffe://example.org/a:",
            ),
            ({**PROGRAM, "executableSha256": "0" * 64}, "entries[0].executableSha256", f"{'0' * 64}: expected uid or"),
            ({**ENTRY, "spiffeID": "spiffe://example.org"}, "entries[0].spiffeID", "with a path"),
            ({**ENTRY, "spiffeID": "example.org/a"}, "entries[0].spiffeID", "SPIFFE ID"),
            ({**ENTRY, "spiffeID": "spiffe://other.org/a"}, "entries[0].spiffeID", "trust domain example.org"),
            ({**ENTRY, "ttl": "1s"}, "entries[0].ttl", "at least 2s"),
            ({**ENTRY, "ttl": "7h"}, "entries[0].ttl", "a quarter of keys.caTtl"),
            ({**ENTRY, "ttl": 60}, "entries[0].ttl", "duration"),
            ({**ENTRY, "uid": True}, "entries[0].uid", "user"),
            ({**ENTRY, "uid": "no-such-user-here"}, "entries[0].uid", "user"),
            ({**ENTRY, "executable": "sh"}, "entries[0].executable", "absolute path"),
            ({**ENTRY, "executableSha256": "AA" * 32}, "entries[0].executableSha256", "64 lower-case"),
        ]
        for entry, key, expected in cases:
            found = self.problems(entries=[entry])
            self.assertIn(key, found)
            self.assertIn(expected, found[key])

    def test_limits_of_lifetimes(self) -> None:
        """The limit between the lifetimes of SVIDs and keys is exact."""
        keys = {"caTtl": "8s"}
        self.load(entries=[{**ENTRY, "ttl": "2s", "jwtTtl": "2s"}], keys=keys)
        for name in ("ttl", "jwtTtl"):
            entry = {**ENTRY, "ttl": "2s", "jwtTtl": "2s", name: "2.1s"}
            self.assertEqual(list(self.problems(entries=[entry], keys=keys)), [f"entries[0].{name}"])

    def test_default_lifetimes(self) -> None:
        """Default lifetimes are shortened to a quarter of that of keys; given ones are not."""
        short = self.load(entries=[ENTRY, {**ENTRY, "jwtTtl": "2s"}], keys={"caTtl": "10m"}).registry.entries
        self.assertEqual([each.ttl.total_seconds() for each in short], [150, 150])
        self.assertEqual([each.jwt_ttl.total_seconds() for each in short], [150, 2])
        (usual,) = self.load(entries=[ENTRY], keys={"caTtl": "4h"}).registry.entries
        self.assertEqual((usual.ttl.total_seconds(), usual.jwt_ttl.total_seconds()), (3600, 300))
        self.assertEqual(list(self.problems(keys={"caTtl": "7.9s"})), ["keys.caTtl"])
        self.load(keys={"caTtl": "8s"})

    def test_rules_between_keys(self) -> None:
        """Keys that contradict each other are all reported at once."""
        self.assertIn("socket", self.problems(socket=None))
        self.assertIn("workloadApi", self.problems(workloadApi="unix:///run/spire.sock", pqIssuer=PQ))
        self.assertIn("pqIssuer", self.problems(socket=None, workloadApi="unix:///run/spire.sock"))
        self.assertIn("socketMode", self.problems(socketGroup="root"))
        self.assertIn("socketGroup", self.problems(socketMode="0660"))
        self.assertIn("pqIssuer.socketGroup", self.problems(pqIssuer={**PQ, "socketMode": "0660"}))
        self.assertIn("pqIssuer.socketMode", self.problems(pqIssuer={**PQ, "socketGroup": "root"}))
        self.assertIn("pqIssuer.socket", self.problems(pqIssuer={}))
        self.assertIn("pqIssuer.socket", self.problems(pqIssuer={"socket": MINIMAL["socket"]}))
        self.assertIn("pqIssuer.spiffeID", self.problems(pqIssuer={**PQ, "spiffeID": "spiffe://other.org/a"}))
        self.assertIn("bundleFile", self.problems(bundleFile="/run/b.json", keys={"caAlgorithm": "ML-DSA-65"}))
        federated = {"trustDomain": "b.example", "bundleFile": "/run/b.json"}
        self.assertIn("federatesWith[1].trustDomain", self.problems(federatesWith=[federated, federated]))
        own = {**federated, "trustDomain": "example.org"}
        self.assertIn("federatesWith[0].trustDomain", self.problems(federatesWith=[own]))
        self.assertIn("federatesWith[0].bundleFile", self.problems(federatesWith=[{"trustDomain": "b.example"}]))
        beside = {"socket": None, "entries": [], "workloadApi": "unix:///run/spire.sock", "pqIssuer": PQ}
        self.assertIn("federatesWith[0].bundleFile", self.problems(**beside, federatesWith=[federated]))
        self.assertIn("federatesWith[0].pqBundleFile", self.problems(**beside, federatesWith=[federated]))
        several = self.problems(socketMode="0660", bundleFile="/x", keys={"caAlgorithm": "ML-DSA-65"}, pqIssuer={})
        self.assertEqual(set(several), {"socketGroup", "bundleFile", "pqIssuer.socket"})

    def test_agents(self) -> None:
        """The agents of nodes are those of the own trust domain by the path of svc-agent, or whom the file names."""
        agent, other = (SpiffeID.parse(f"spiffe://example.org/{path}") for path in ("svc/agent", "node/a"))
        for given, counts in (({}, (True, False)), ({"agents": "spiffe://example.org/node/*"}, (False, True))):
            settings = AuthoritySettings.model_validate({**MINIMAL, "pqIssuer": {**PQ, **given}})
            self.assertEqual(counts, tuple(settings.agents.matches(each) for each in (agent, other)))
        self.assertIn("pqIssuer.agents", self.problems(pqIssuer={**PQ, "agents": "svc/agent"}))

    def test_file(self) -> None:
        """A file that is missing or not YAML is refused."""
        self.assertRaises(ConfigUnreadable, load_settings, "/proc/nonexistent.yaml")
        self.assertRaises(ConfigUnreadable, self.load_text, "a: [")
        os.makedirs("folder", exist_ok=True)
        self.assertRaises(ConfigUnreadable, load_settings, "folder")
