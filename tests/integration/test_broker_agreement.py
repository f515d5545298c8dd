"""
The same clients before svc-broker and before Mosquitto: they must see the same, but for the differences listed.

All scenes are played at once, so that those that wait take their time once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import Version
from tests.integration.agreement import connecting, delivering, describing, differences, retaining, subscribing, timing
from tests.integration.agreement.malformed import outcomes
from tests.integration.agreement.play import Scene
from tests.peers.broker import RunningBroker
from tests.peers.mosquitto import ALIASES, INFLIGHT, RunningMosquitto
from tests.peers.waiting import Shared

#: Those that wait begin first.
SCENES: list[Scene] = [
    each for module in (timing, connecting, delivering, retaining, subscribing, describing) for each in module.SCENES
]
TOGETHER = 16
Seen = dict[str, str]


class Premiere:
    """
    All scenes before both brokers.

    Args:
        stack: ends everything.
    """

    def __init__(self, stack: ExitStack) -> None:
        # Both have the same limits where both have them.
        theirs = RunningMosquitto(stack, {"max_packet_size": str(1024 * 1024)}).start()
        ours = stack.enter_context(RunningBroker(limits={"received": INFLIGHT, "aliases": ALIASES}))
        pool = stack.enter_context(ThreadPoolExecutor(TOGETHER))
        ports = ours.port, theirs.port
        self._seen: dict[tuple[str, Version], list[Future[Seen]]] = {
            (scene.name, version): [pool.submit(scene.played, port, version) for port in ports]
            for scene in SCENES
            for version in scene.versions
        }
        self._broken = [pool.submit(outcomes, port) for port in ports]

    def seen(self, scene: Scene, version: Version) -> tuple[Seen, Seen]:
        """Return what clients saw of svc-broker and of Mosquitto."""
        ours, theirs = (each.result() for each in self._seen[scene.name, version])
        return ours, theirs

    def broken(self) -> tuple[dict[tuple[int, str], Counter[str]], ...]:
        """Return the result of packets that violate the standard."""
        return tuple(each.result() for each in self._broken)


PREMIERE = Shared(Premiere)


def found(scene: Scene, version: Version) -> dict[str, tuple[str | None, str | None]]:
    """Compare what clients saw; return each step that differs."""
    ours, theirs = PREMIERE.get().seen(scene, version)
    return {
        step: (ours.get(step), theirs.get(step)) for step in {**ours, **theirs} if ours.get(step) != theirs.get(step)
    }


class AgreementTests(SynchronousTestCase):
    """Each scene is a test, whose name and docstring are those of the scene."""

    maxDiff = None


def _test(scene: Scene) -> Callable[[Any], None]:
    def test(case: SynchronousTestCase) -> None:
        for version in scene.versions:
            ours, _ = PREMIERE.get().seen(scene, version)
            case.assertTrue(ours, "the scene shows nothing")
            listed = {
                each.step: (each.ours, each.theirs)
                for each in differences.SCENES
                if each.scene == scene.name and version in each.versions
            }
            case.assertEqual(found(scene, version), listed, f"{scene.name} in {version.name}")

    test.__doc__ = scene.act.__doc__
    return test


for _scene in SCENES:
    setattr(AgreementTests, f"test_{_scene.name}", _test(_scene))


class ListTests(SynchronousTestCase):
    """The list of differences."""

    def test_every_row_has_its_scene(self) -> None:
        """Each difference belongs to a scene and a version that are run, and is listed once."""
        played = {(each.name, version) for each in SCENES for version in each.versions}
        rows = [(each.scene, each.step, version) for each in differences.SCENES for version in each.versions]
        self.assertEqual([row for row in rows if (row[0], row[2]) not in played], [])
        self.assertEqual(len(rows), len(set(rows)))
        self.assertEqual(len(SCENES), len({each.name for each in SCENES}))


class BrokenTests(SynchronousTestCase):
    """Every packet of the codec's tables that breaks a normative statement."""

    def test_every_one_ends_its_connection(self) -> None:
        """svc-broker does not continue after any of them."""
        ours, _ = PREMIERE.get().broken()
        self.assertGreater(sum(counts.total() for counts in ours.values()), 2000)
        self.assertEqual([row for row, counts in ours.items() if counts["goes on"]], [])

    def test_differences(self) -> None:
        """Both brokers end the connection in the same way, except for the listed differences."""
        ours, theirs = PREMIERE.get().broken()
        grouped: dict[tuple[int, str, str], list[str]] = {}
        for (version, number), counts in ours.items():
            if counts != theirs[version, number]:
                pair = described(counts), described(theirs[version, number])
                grouped.setdefault((version, *pair), []).append(number)
        listed = {row[:3]: list(row[3]) for row in differences.BROKEN}
        self.assertEqual(grouped, listed)


def described(counts: Counter[str]) -> str:
    """Format the outcomes, with their counts if there are several."""
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{outcome} ×{number}" for outcome, number in sorted(counts.items()))
