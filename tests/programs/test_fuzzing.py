"""Fuzzing of each target: a fixed number of inputs, in the long form ten minutes."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.fuzzing.targets import TARGETS, documents
from tests.peers.waiting import TOP, Shared, rounds

#: Of the long form.
SECONDS = 600


def _serve(stack: ExitStack) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.fuzzing", "--serve"]
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    # Leaving it closes its standard input, which ends it. It names each module that it instruments.
    return stack.enter_context(subprocess.Popen(command, cwd=TOP, stdin=pipe, stdout=pipe, stderr=quiet, text=True))


SERVER = Shared(_serve)


class SeedTests(SynchronousTestCase):
    """The inputs to begin with, where atheris is not installed either."""

    def test_seeds(self) -> None:
        """All pass, and those of files are accepted."""
        for target in TARGETS.values():
            for seed in target.seeds:
                target.run(seed)
        for name, kind in (("policy_file", 0), ("deny_list", 1)):
            self.assertTrue(all(documents(seed)[kind] for seed in TARGETS[name].seeds))


class FuzzTests(SynchronousTestCase):
    """libFuzzer on one target after the other."""

    def fuzz(self, name: str) -> None:
        """Run it in a process of its own, which libFuzzer ends; the code is instrumented once for all."""
        if find_spec("atheris") is None:
            raise SkipTest("atheris is not installed: pip install -e .[test], where it has a wheel (Linux on x86_64)")
        target, folder = TARGETS[name], Path(self.mktemp()).absolute()
        folder.mkdir()
        for number, seed in enumerate(target.seeds):
            Path(folder, f"seed-{number}").write_bytes(seed)
        # libFuzzer stops at whichever comes first; 0 is no limit.
        bound = f"-runs={rounds(target.inputs, -1)}", f"-max_total_time={rounds(0, SECONDS)}"
        found = f"{folder}-found-"
        options = (*bound, "-seed=1", f"-max_len={target.longest}", "-timeout=60", f"-artifact_prefix={found}")
        output = folder.with_name(f"{folder.name}-output")
        server = SERVER.get()
        server.stdin.write(json.dumps([str(output), name, str(folder), *options]) + "\n")
        server.stdin.flush()
        status = server.stdout.readline().strip()
        inputs = [each.read_bytes() for each in folder.parent.glob(f"{folder.name}-found-*")]
        shown = (
            output.read_text(errors="replace")[-4000:]
            if output.exists()
            else f"python -m tests.fuzzing {name} does not begin"
        )
        self.assertEqual(("0", []), (status, inputs), f"{shown}\nadd the input to the seeds of {name}")
        self.assertIn("DONE", shown)

    def test_policy_file(self) -> None:
        """Policy files."""
        self.fuzz("policy_file")

    def test_policy_engine(self) -> None:
        """Decisions of any policies, as a naive evaluation decides."""
        self.fuzz("policy_engine")

    def test_deny_list(self) -> None:
        """Deny lists."""
        self.fuzz("deny_list")

    def test_path(self) -> None:
        """Paths of requests, and patterns of paths and hosts."""
        self.fuzz("path")

    def test_requests(self) -> None:
        """Heads and bodies of requests."""
        self.fuzz("requests")

    def test_responses(self) -> None:
        """Heads and bodies of responses."""
        self.fuzz("responses")

    def test_mqtt_session(self) -> None:
        """Packets of a client of MQTT through the proxy."""
        self.fuzz("mqtt_session")

    def test_federation_reference(self) -> None:
        """Texts of federation references and fingerprints."""
        self.fuzz("federation_reference")

    def test_package_payload(self) -> None:
        """Payloads of bootstrap packages."""
        self.fuzz("package_payload")

    def test_license_file(self) -> None:
        """Texts of license files."""
        self.fuzz("license_file")

    def test_license_payload(self) -> None:
        """Payloads of licenses."""
        self.fuzz("license_payload")

    def test_proxy_header(self) -> None:
        """PROXY protocol headers."""
        self.fuzz("proxy_header")

    def test_message_payload(self) -> None:
        """Payloads of receipts, of a message of MQTT to begin with."""
        self.fuzz("message_payload")
