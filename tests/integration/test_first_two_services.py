"""``docs/first-two-services.md``, followed by the letter on machines of its own."""

from __future__ import annotations

import re
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.machine import Machine
from tests.peers.pages import Command, File, page, steps
from tests.peers.waiting import eventually

ONE, _, TWO = page("first-two-services.md").partition("## Two machines")


class FirstTwoServicesTests(SynchronousTestCase):
    """Every file and every command of the page, in its order."""

    def setUp(self) -> None:
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.stack = stack
        self.machines = {"one": stack.enter_context(Machine())}

    def test_the_page(self) -> None:
        """Two users of one machine, then two machines."""
        one = self.machines["one"]
        for step in steps(ONE):
            self.follow(step)
        self.assert_group_is_named(one)
        two = self.machines["two"] = self.stack.enter_context(Machine())
        one.connect(two)
        two.run("echo 10.0.0.1 api.example.org >> /etc/hosts")
        for step in steps(TWO):
            self.follow(step)

    def assert_group_is_named(self, machine: Machine) -> None:
        """Who is in no group that may connect is told so by the check of the configuration, for both sockets."""
        machine.run("useradd --system stranger")
        check = "/opt/svc/.venv/bin/twistd svc-proxy --config /etc/svc/proxy-api.yaml --check-config"
        status, output = machine.run(f"runuser -u stranger -- {check}")
        self.assertEqual(1, status)
        for what, key in (("Workload API", "spiffeSocketPath"), ("post-quantum issuer", "notary.pqIssuer")):
            self.assertRegex(
                output,
                rf"svc: {what} at \S+ cannot be reached: the file system does not let this user connect\n"
                rf" +add the user of this service to the group of the socket .*; or change {key}\n",
            )

    def follow(self, step: File | Command) -> None:
        """Do what the page says, on the machine that it names."""
        if isinstance(step, File):
            self.write(step)
        elif step.text.startswith("scp "):
            self.copy(step)
        else:
            self.machines[step.machine or "one"].follow(step)

    def write(self, file: File) -> None:
        """Write a file, or change it as its first line says."""
        machine = self.machines["two" if file.remark == "on two" else "one"]
        text = file.text
        if file.remark.endswith("in place of its policy"):
            text = re.sub(r"(?m)^policy:.*\n", text, machine.read(file.path) or "")
        elif file.remark.endswith("at its end"):
            text = (machine.read(file.path) or "") + text
        machine.write(file.path, text)

    def copy(self, command: Command) -> None:
        """Copy as scp does, once the authority that was started in the background has written the file."""
        *sources, target = [each.rpartition(":") for each in command.text.split()[1:]]
        hosts = {"": command.machine, "root@api.example.org": "one"}
        for host, _colon, path in sources:
            text = eventually(partial(self.machines[hosts[host]].read, path), what=path)
            self.machines[hosts[target[0]]].write(f"{target[2]}{Path(path).name}", text or "")
