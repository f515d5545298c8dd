"""The sources of the workload facts in a statement."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from twisted.trial.unittest import SynchronousTestCase

from svc.notary.facts import FactsInvalid
from svc.proxy import facts as module
from svc.proxy.config import ProxySettings, WorkloadSettings
from svc.proxy.facts import PodInfoUnreadable, label_files, read_facts, read_labels
from svc.settings import ConfigInvalid, parse

LISTENERS = 'listeners: [{name: w, protocol: http, direction: inbound, listen: ":1", upstream: "a:1"}]'


def settings_of(section: str) -> WorkloadSettings:
    """Parse the section ``workload`` of a file."""
    return parse(f"trustDomain: a.example\n{LISTENERS}\nworkload: {section}", ProxySettings).workload


class ExplicitTests(SynchronousTestCase):
    """Facts given in the configuration."""

    def test_nothing(self) -> None:
        """Without configured facts the statement has only the host name."""
        claims = read_facts(settings_of("{}")).claims()
        self.assertIn(socket.gethostname(), json.dumps(claims))

    def test_all(self) -> None:
        """All configured facts are published; labels and annotations only if they are allowed."""
        facts = read_facts(
            settings_of(
                "{namespace: pay, serviceAccount: api, podName: api-1, podUID: u-1, node: n1,"
                " containers: [{name: api, image: reg/api:1, init: true}],"
                " labels: {app: api, secret: x}, annotations: {owner: me, other: y},"
                " allowLabels: [app], allowAnnotations: [owner]}"
            )
        )
        self.assertEqual(
            (facts.namespace, facts.service_account, facts.pod_name, facts.pod_uid, facts.node),
            ("pay", "api", "api-1", "u-1", "n1"),
        )
        [container] = facts.containers or ()
        self.assertEqual((container.name, container.image, container.init), ("api", "reg/api:1", True))
        claims = json.dumps(facts.claims())
        for shown, hidden in (("app", "secret"), ("owner", "other")):
            self.assertIn(f'"{shown}"', claims)
            self.assertNotIn(f'"{hidden}"', claims)

    def test_checked_with_the_file(self) -> None:
        """A value that no statement can contain is a problem of the configuration."""
        error = self.assertRaises(ConfigInvalid, settings_of, '{containers: [{name: "", image: reg/api:1}]}')
        [problem] = error.problems
        self.assertEqual(problem.key, "workload")
        self.assertTrue(problem.expected.startswith("facts that a statement can contain: "), problem.expected)


class FolderTests(SynchronousTestCase):
    """Facts from a downward-API folder."""

    def setUp(self) -> None:
        """Create an empty folder."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.settings = settings_of(f"{{podInfo: {self.folder.absolute()}, allowLabels: [app]}}")

    def refused(self, name: str, what: str) -> None:
        """Assert which file is refused and why."""
        error = self.assertRaises(PodInfoUnreadable, read_facts, self.settings)
        path = self.folder.absolute() / name if name else self.folder.absolute()
        self.assertEqual(error.evidence, {"path": path, "what": what})
        self.assertEqual(error.reason, "pod_info_unreadable")

    def test_files(self) -> None:
        """Each file gives one fact; labels are filtered as those of the configuration are."""
        for name, text in (
            ("namespace", "pay"),
            ("serviceAccount", "api"),
            ("podName", "api-1"),
            ("podUID", "u-1"),
            ("node", "n1"),
            ("containers", '[{"name": "api", "image": "reg/api:1"}]'),
            ("labels", 'app="api"\nsecret="x"'),
        ):
            (self.folder / name).write_text(text)
        facts = read_facts(self.settings)
        self.assertEqual(
            (facts.namespace, facts.service_account, facts.pod_name, facts.pod_uid, facts.node),
            ("pay", "api", "api-1", "u-1", "n1"),
        )
        claims = json.dumps(facts.claims())
        self.assertIn('"app"', claims)
        self.assertNotIn("secret", claims)

    def test_read_each_time(self) -> None:
        """The files are read each time, since the kubelet changes them."""
        (self.folder / "namespace").write_text("pay")
        before = read_facts(self.settings)
        self.assertEqual(read_facts(self.settings), before)
        (self.folder / "namespace").write_text("other")
        self.assertNotEqual(read_facts(self.settings), before)

    def test_missing_files(self) -> None:
        """A fact without a file is absent."""
        (self.folder / "namespace").write_text("pay")
        self.assertEqual(read_facts(self.settings).node, None)

    def test_missing_folder(self) -> None:
        """A missing folder is an error, unlike an empty one."""
        self.folder.rmdir()
        self.refused("", "there is no such folder")

    def test_folder_without_permission(self) -> None:
        """A folder whose status cannot be read is reported with the error text of the system."""
        self.patch(Path, "stat", lambda _path: self.deny())
        self.refused("", os.strerror(errno.EACCES))

    def deny(self) -> NoReturn:
        """Raise what the system call raises."""
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def replace_version(self, name: str) -> None:
        """Write a version of the facts as the kubelet does: files in a new folder, behind one link."""
        version = self.folder / f"..{name}"
        version.mkdir()
        (version / "namespace").write_text(name)
        (version / "node").write_text(name)
        link = self.folder / "..new"
        link.symlink_to(version.name)
        link.rename(self.folder / "..data")

    def test_one_version(self) -> None:
        """Where the kubelet replaces the files during a reading, all are read again."""
        self.replace_version("old")
        for name in ("namespace", "node"):
            (self.folder / name).symlink_to(f"..data/{name}")
        read = module._read

        def replaced_meanwhile(folder: Path, names: Sequence[str]) -> dict[str, str]:
            found = read(folder, names)
            if not (folder / "..new-version").exists():
                self.replace_version("new-version")
            return found

        self.patch(module, "_read", replaced_meanwhile)
        facts = read_facts(self.settings)
        self.assertEqual((facts.namespace, facts.node), ("new-version", "new-version"))

    def test_always_changing(self) -> None:
        """A folder that changes during each reading is refused, after five."""
        versions = iter(range(100))
        self.patch(module, "_version", lambda _folder: str(next(versions)))
        self.refused("", "it changes during each reading")
        self.assertEqual(10, next(versions))

    def test_size(self) -> None:
        """A file of the largest size is read; a larger one is refused."""
        limit = module._MAX_FILE
        padding = "\n" * (limit - len('app="api"'))
        (self.folder / "labels").write_text('app="api"' + padding)
        try:
            read_facts(self.settings)
        except FactsInvalid as error:
            self.assertEqual(error.evidence["name"], "labels")
        (self.folder / "labels").write_text('app="api"' + padding + "\n")
        self.refused("labels", f"it is larger than {limit} octets")

    def test_no_text(self) -> None:
        """A file that is not UTF-8 is refused by name."""
        (self.folder / "node").write_bytes(b"n\xff")
        self.refused("node", "invalid UTF-8 at octet 1")

    def test_unreadable(self) -> None:
        """A file that cannot be read is reported with the error text of the system."""
        (self.folder / "node").mkdir()
        self.refused("node", os.strerror(21))

    def test_wrong_content(self) -> None:
        """Invalid content of a file is reported by the rules of the notary."""
        (self.folder / "containers").write_text("{}")
        error = self.assertRaises(FactsInvalid, read_facts, self.settings)
        self.assertEqual(error.evidence["name"], "containers")

    def test_labels(self) -> None:
        """All labels are read for the selection of policies, whatever a statement may contain; or they are unknown."""
        self.assertIsNone(read_labels(self.settings))
        (self.folder / "labels").write_text('app="api"\nteam="a\\"b"\n')
        self.assertEqual({"app": "api", "team": 'a"b'}, read_labels(self.settings))
        self.assertEqual((f"{self.settings.podInfo}/labels",), label_files(self.settings))
        (self.folder / "labels").write_text("app")
        self.assertRaises(FactsInvalid, read_labels, self.settings)
        self.assertEqual({"app": "web"}, read_labels(WorkloadSettings(labels={"app": "web"})))
        self.assertEqual((None, ()), (read_labels(WorkloadSettings()), label_files(WorkloadSettings())))
