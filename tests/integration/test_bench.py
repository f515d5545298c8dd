"""The benchmark as users start it: everything is measured, and the result has the documented form."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from benchmarks.against import changes

ROOT = Path(__file__).parents[2]
MEMBERS = {"metric", "peer", "ours", "theirs", "unit", "ratio", "must", "met"}
#: Metric and peer of every row of a run without options, in order.
ROWS = [
    ("HTTP inbound, none", "haproxy"),
    ("HTTP inbound, workload", "haproxy"),
    ("HTTP inbound, workload", "caddy"),
    ("HTTP inbound, workload", "twisted.web"),
    ("HTTP outbound", "haproxy"),
    ("bulk", "haproxy"),
    ("new mTLS connections", "haproxy"),
    ("added p50, one connection", "haproxy"),
    ("workload, added p50", "budget"),
    ("logRequest, added p50", "budget"),
    ("signRequest, added p50", "budget"),
    ("TCP inbound", "haproxy tcp"),
    ("TCP inbound", "stunnel"),
    ("TCP bulk", "haproxy tcp"),
    ("TCP bulk", "stunnel"),
    *(
        (f"signRequest{what}, {connections}", "budget")
        for what in ("", " p50", " p99")
        for connections in ("1 connection", "8 connections", "32 connections", "128 connections")
    ),
    *(
        (f"logRequest over workload, {connections}", "budget")
        for connections in ("1 connection", "8 connections", "32 connections", "128 connections")
    ),
    ("connection with X25519MLKEM768", "ours, X25519"),
    ("a receipt on disk", "budget"),
    ("idle mTLS connection", "haproxy"),
    ("the process at rest", "budget"),
    ("policy change, open connection", "budget"),
    ("policy change, longest part of a turn", "budget"),
    *(
        (f"beside {flood}, longest wait", "budget")
        for flood in (
            "refused requests",
            "chunks of a request",
            "chunks of a response",
            "PINGREQ",
            "refused PUBLISH",
            "deep SUBSCRIBE",
            "PUBREL of a broker",
        )
    ),
    ("policy decision, 1000 rules", "ours, 10 rules"),
]
#: The same of a run with ``--mqtt``; they are the last ones of a whole run.
MQTT_ROWS = [
    ("MQTT QoS 0", "mosquitto"),
    ("MQTT QoS 1", "mosquitto"),
    ("MQTT QoS 2", "mosquitto"),
    ("MQTT fan-out 1:100", "mosquitto"),
    ("MQTT connections", "mosquitto"),
    ("MQTT idle client", "mosquitto"),
    *(
        (f"MQTT proxy {level}{what}", "haproxy tcp")
        for level in ("", "logRequest, ", "signRequest, ")
        for what in (
            "QoS 0, 20 in flight",
            "QoS 1, 20 in flight",
            "QoS 1, 1 in flight",
            "QoS 2, 20 in flight",
            "connections",
        )
    ),
]
#: The project's requirement for a request through the proxy; the rest is in docs/benchmarks.md.
FLOORS = {
    ("HTTP inbound, workload", "haproxy"): 0.33,
    ("HTTP inbound, workload", "caddy"): 1.0,
    ("MQTT QoS 1", "mosquitto"): 0.35,
    ("MQTT proxy QoS 1, 20 in flight", "haproxy tcp"): 0.8,
    ("MQTT proxy QoS 1, 1 in flight", "haproxy tcp"): 0.45,
}


def _missing() -> list[str]:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    names = ("haproxy", "stunnel4", "caddy", "nginx", "mosquitto")
    missing = [name for name in names if shutil.which(name, path=path) is None]
    if os.geteuid() != 0 and shutil.which("gcc") is None:
        # As root the command installs the compiler itself.
        missing.append("gcc")
    return missing


class ChangesTests(SynchronousTestCase):
    """What ``bin/bench --against`` prints of two trees."""

    def test_greatest_loss_is_first(self) -> None:
        """Each row of both trees has its medians and the spread of its quotients; one on one side of 1 is marked."""
        better, worse, alone = ("bulk", "haproxy"), ("connections", "haproxy"), ("new", "haproxy")
        pairs = [
            ({better: 1.0, worse: 1.0}, {better: 1.2, worse: 0.8, alone: 1.0}),
            ({better: 1.0, worse: 0.5}, {better: 0.9, worse: 0.45, alone: 1.0}),
            ({better: 1.0, worse: 1.0}, {better: 1.1, worse: 0.9, alone: 1.0}),
        ]
        self.assertEqual(
            [
                ["1.000", "0.800", "0.90", "0.80", "0.90", "*", "connections,", "haproxy"],
                ["1.000", "1.100", "1.10", "0.90", "1.20", "bulk,", "haproxy"],
            ],
            [line.split() for line in changes(pairs).splitlines()[1:]],
        )


class BenchTests(SynchronousTestCase):
    """``bin/bench --quick``. No time is checked here: the machine of a test may be busy."""

    def setUp(self) -> None:
        """Skip where a peer is absent."""
        missing = _missing()
        if missing:
            packages = "haproxy stunnel4 caddy nginx-light mosquitto gcc libssl-dev"
            raise SkipTest(f"needs {', '.join(missing)}: apt-get install {packages}")

    def test_a_smoke_run_measures_every_row(self) -> None:
        """Each row is printed and written, with positive figures, a ratio that follows from them, and its floor."""
        with tempfile.TemporaryDirectory(prefix="svc-bench-test-") as folder:
            file = Path(folder) / "rows.json"
            command = [str(ROOT / "bin" / "bench"), "--quick", "--json", str(file)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=1200, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, done.stderr)
            document = json.loads(file.read_text(), parse_constant=self.fail)
        rows = document["rows"]
        self.assertEqual([(row["metric"], row["peer"]) for row in rows], ROWS + MQTT_ROWS)
        for row in rows:
            self._assert_row(row, done.stdout)
        for name in ("haproxy", "mosquitto"):
            self.assertIn(name, document["surroundings"][name].lower())

    def test_two_trees_are_compared(self) -> None:
        """The tree of a commit and this one are measured in turn; no work tree is left; no such commit is an error."""
        command = [str(ROOT / "bin" / "bench"), "--quick", "--records", "--pairs", "1", "--against"]
        done = subprocess.run([*command, "HEAD"], capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line for line in done.stdout.splitlines() if "signRequest" in line]
        self.assertEqual(12, len(rows), done.stdout)
        self.assertIn("this tree", done.stderr)
        trees = subprocess.run(["git", "-C", str(ROOT), "worktree", "list"], capture_output=True, text=True, check=True)
        self.assertNotIn("svc-bench-", trees.stdout)
        done = subprocess.run([*command, "0" * 40], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        self.assertIn("cannot be measured", done.stderr)

    def _assert_row(self, row: dict[str, object], shown: str) -> None:
        self.assertEqual(set(row), MEMBERS)
        ours, theirs, ratio, must = (row[name] for name in ("ours", "theirs", "ratio", "must"))
        for figure in (ours, theirs, ratio):
            assert isinstance(figure, float)
            self.assertGreater(figure, 0.0, row)
        more_is_better = "/CPU s" in str(row["unit"]) or row["unit"] == "receipts/s"
        better = ours / theirs if more_is_better else theirs / ours  # type: ignore[operator]
        self.assertApproximates(ratio, better, 0.01 * better)
        self.assertEqual(row["met"], None if must is None else ratio >= must)  # type: ignore[operator]
        floor = FLOORS.get((str(row["metric"]), str(row["peer"])))
        if floor is not None:
            self.assertEqual(must, floor)
        self.assertIn(str(row["metric"]), shown)
