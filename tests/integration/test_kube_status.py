"""Status and Events on a real API server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from svc.errors import SvcError
from svc.kube.client import Client, Object
from svc.kube.events import EVENTS, MAX_NOTE, EventRecorder
from svc.kube.status import apply_status, with_condition
from tests.integration.kube_rig import CONFIGMAPS, PROBES, SERVER, KubeCase, config_map, install_probes

MANAGER = "svc-test"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


class _Case(KubeCase):
    """One server for all, which knows the kind ``Probe``."""

    def setUp(self) -> None:
        """Take the server."""
        self.server = SERVER.get()
        install_probes(self.server)

    async def probe(self, client: Client, namespace: str) -> Object:
        """Make an object."""
        body = {"apiVersion": PROBES.api_version, "kind": PROBES.name, "spec": {"text": "a"}}
        return await client.create(PROBES, {**body, "metadata": {"name": "one", "namespace": namespace}})


class KubeStatusTests(_Case):
    """Server-side apply of a status."""

    def status(self, found: Object, ready: Any = "True", **more: object) -> dict[str, Any]:
        """A status as a controller computes it."""
        conditions = (found.get("status") or {}).get("conditions", ())
        return {
            **more,
            "conditions": with_condition(
                conditions, "Ready", ready, "Because", "", datetime.now(UTC), generation=found["metadata"]["generation"]
            ),
        }

    def test_written_once(self) -> None:
        """A status is written where it is another one; an equal one is no request, even where the object is gone."""

        async def once(client: Client, namespace: str) -> None:
            found = await self.probe(client, namespace)
            self.assertTrue(await apply_status(client, PROBES, found, self.status(found, count=1), manager=MANAGER))
            found = await client.get(PROBES, "one", namespace)
            self.assertEqual(1, found["status"]["count"])
            self.assertFalse(await apply_status(client, PROBES, found, self.status(found, count=1), manager=MANAGER))
            self.assertEqual(found, await client.get(PROBES, "one", namespace))
            self.server.kubectl("delete", "probe", "one", "-n", namespace)
            self.assertFalse(await apply_status(client, PROBES, found, found["status"], manager=MANAGER))

        self.play(self.server, once)

    def test_changed(self) -> None:
        """What the status has no more is removed; the specification stays as it is, and its generation."""

        async def changed(client: Client, namespace: str) -> None:
            found = await self.probe(client, namespace)
            await apply_status(client, PROBES, found, self.status(found, count=1), manager=MANAGER)
            found = await client.get(PROBES, "one", namespace)
            await apply_status(client, PROBES, found, self.status(found, "False"), manager=MANAGER)
            last = await client.get(PROBES, "one", namespace)
            self.assertEqual({"conditions"}, set(last["status"]))
            self.assertEqual("False", last["status"]["conditions"][0]["status"])
            self.assertEqual(({"text": "a"}, 1), (last["spec"], last["metadata"]["generation"]))

        self.play(self.server, changed)

    def test_other_writers(self) -> None:
        """What somebody else wrote into the status is taken over, in spite of the owners of fields."""

        async def others(client: Client, namespace: str) -> None:
            found = await self.probe(client, namespace)
            await apply_status(client, PROBES, found, self.status(found, count=1), manager=MANAGER)
            found = await client.get(PROBES, "one", namespace)
            await apply_status(client, PROBES, found, {**found["status"], "count": 7}, manager="somebody")
            found = await client.get(PROBES, "one", namespace)
            self.assertEqual(7, found["status"]["count"])
            self.assertTrue(await apply_status(client, PROBES, found, self.status(found, count=1), manager=MANAGER))
            self.assertEqual(1, (await client.get(PROBES, "one", namespace))["status"]["count"])

        self.play(self.server, others)

    def test_two_writers(self) -> None:
        """Of two that have read the same object the second is refused, and writes when it has read it again."""

        async def two(client: Client, namespace: str) -> None:
            first = second = await self.probe(client, namespace)
            await apply_status(client, PROBES, first, self.status(first, count=1), manager=MANAGER)
            status = self.status(second, count=2)
            await self.refused("kubernetes_conflict", apply_status(client, PROBES, second, status, manager=MANAGER))
            second = await client.get(PROBES, "one", namespace)
            self.assertEqual(1, second["status"]["count"])
            self.assertTrue(await apply_status(client, PROBES, second, self.status(second, count=2), manager=MANAGER))

        self.play(self.server, two)

    def test_another_object(self) -> None:
        """The status of an object that is gone is written to none, and to no other one of its name."""

        async def another(client: Client, namespace: str) -> None:
            first = await self.probe(client, namespace)
            self.server.kubectl("delete", "probe", "one", "-n", namespace)
            status = self.status(first)
            await self.refused("kubernetes_not_found", apply_status(client, PROBES, first, status, manager=MANAGER))
            second = await self.probe(client, namespace)
            await self.refused("kubernetes_conflict", apply_status(client, PROBES, first, status, manager=MANAGER))
            self.assertEqual(second, await client.get(PROBES, "one", namespace))

        self.play(self.server, another)


class KubeEventTests(_Case):
    """Events."""

    async def notes(self, client: Client, namespace: str) -> list[str]:
        """The notes of all Events."""
        found, _ = await client.list(EVENTS, namespace)
        return sorted(each["note"] for each in found)

    def test_recorded(self) -> None:
        """An Event is found where kubectl looks for it."""

        async def recorded(client: Client, namespace: str) -> None:
            found = await self.probe(client, namespace)
            recorder = EventRecorder(client, "svc.internal/test", "test-0", lambda: datetime.now(UTC), self.fail)
            await recorder.record(found, "Warning", "LicenseExpired", "Evaluate", "the license has expired")
            shown = self.server.kubectl("describe", "probe", "one", "-n", namespace)
            for text in ("Warning", "LicenseExpired", "svc.internal/test", "the license has expired"):
                self.assertIn(text, shown)
            self.assertIn("LicenseExpired", self.server.kubectl("get", "events", "-n", namespace))

        self.play(self.server, recorded)

    def test_repeated(self) -> None:
        """Of an object and reason there is one Event in an interval; other reasons and objects have their own."""

        async def repeated(client: Client, namespace: str) -> None:
            first = await self.probe(client, namespace)
            second = await client.create(CONFIGMAPS, config_map(namespace, "two"))
            for interval, wanted in (
                (60.0, ["a0", "b0", "c0"]),
                (0.0, ["a0", "a0", "a1", "b0", "b0", "b1", "c0", "c0", "c1"]),
            ):
                recorder = EventRecorder(
                    client, "svc.internal/test", "test-0", lambda: NOW, self.fail, interval=interval
                )
                for number in range(2):
                    await recorder.record(first, "Normal", "One", "Do", f"a{number}")
                    await recorder.record(first, "Normal", "Two", "Do", f"b{number}")
                    await recorder.record(second, "Normal", "One", "Do", f"c{number}")
                self.assertEqual(wanted, await self.notes(client, namespace))

        self.play(self.server, repeated)

    def test_bounds(self) -> None:
        """A note as long as the API server takes, a longer one, which is cut between characters, and a long name."""

        async def bounds(client: Client, namespace: str) -> None:
            body = config_map(namespace, "n" * 253)
            found = await client.create(CONFIGMAPS, body)
            recorder = EventRecorder(client, "svc.internal/test", "test-0", lambda: NOW, self.fail, interval=0.0)
            for note in ("x" * MAX_NOTE, "x" * (MAX_NOTE + 1), "ä" * MAX_NOTE, "x" + "ä" * MAX_NOTE):
                await recorder.record(found, "Normal", "Long", "Do", note)
            lengths = [len(each.encode()) for each in await self.notes(client, namespace)]
            self.assertEqual([MAX_NOTE, MAX_NOTE, MAX_NOTE - 1, MAX_NOTE], lengths)

        self.play(self.server, bounds)

    def test_cluster_object(self) -> None:
        """The Events of an object without a namespace are in the namespace default."""

        async def of_cluster(client: Client, namespace: str) -> None:
            found = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": namespace, "uid": "00000000-0000-0000-0000-000000000001"},
            }
            recorder = EventRecorder(client, "svc.internal/test", "test-0", lambda: NOW, self.fail)
            await recorder.record(found, "Normal", "Seen", "See", namespace)
            self.assertIn(namespace, await self.notes(client, "default"))

        self.play(self.server, of_cluster)

    def test_refused(self) -> None:
        """An Event that is refused is reported, and nothing else fails."""

        async def refused(client: Client, namespace: str) -> None:
            failures: list[SvcError] = []
            found = {**config_map(namespace, "a"), "metadata": {"name": "a", "namespace": namespace, "uid": "1"}}
            recorder = EventRecorder(client, "svc.internal/test", "test-0", lambda: NOW, failures.append)
            await recorder.record(found, "Normal", "Seen", "See", "x")
            self.assertEqual(["kubernetes_forbidden"], [each.reason for each in failures])

        self.play(self.server, refused, self.server.credentials("unknown", "unknowns"))
