"""``docs/first-two-services.md``, followed by the letter on machines of its own."""

from __future__ import annotations

import re
from contextlib import ExitStack

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.machine import Machine
from tests.peers.waiting import TOP, eventually

PAGE = (TOP / "docs" / "first-two-services.md").read_text()
ONE, _, TWO = PAGE.partition("## Two machines")


def files(page: str) -> list[tuple[str, str, str]]:
    """The path of each file that a page shows, what the page says of it, and its text."""
    return re.findall(r"^```yaml\n# (/[^\s:]+):?([^\n]*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[tuple[str, str, str]]:
    """The prompt of each command, the command and the output that the page shows."""
    blocks = "".join(re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    return re.findall(r"^((?:one|two)?[#$]) (.*)\n((?:(?!(?:one|two)?[#$] ).*\n)*)", blocks, re.MULTILINE)


def pattern(shown: str) -> str:
    """What the output must match: a line with nothing but an ellipsis stands for any lines, one within for any text."""
    lines = ["(?:.*\n)*" if line == "…\n" else re.escape(line).replace("…", ".*") for line in shown.splitlines(True)]
    return "".join(lines)


class FirstTwoServicesTests(SynchronousTestCase):
    """Every file and every command of the page, in its order."""

    def setUp(self) -> None:
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.stack = stack
        self.machines = {"one": stack.enter_context(Machine())}

    def run_commands(self, page: str) -> None:
        """Run the commands of a page; root's shell is kept, and ``$`` stands for an ordinary user."""
        for prompt, command, shown in commands(page):
            name = prompt[:-1] or "one"
            if command.startswith("scp "):
                self.copy(name, command)
                continue
            machine = self.machines[name]
            status, output = machine.run(f"runuser -u nobody -- {command}" if prompt.endswith("$") else command)
            logs = machine.run("tail -n 5 /var/log/svc-*.log")[1] if status else ""
            self.assertEqual(0, status, f"{command}\n{output}\n{logs}")
            self.assertRegex(output, rf"\A{pattern(shown)}\Z", command)

    def copy(self, name: str, command: str) -> None:
        """Copy as scp does, once the authority that systemd has started in the background has written the file."""
        *sources, target = [each.rpartition(":") for each in command.split()[1:]]
        hosts = {"": name, "root@api.example.org": "one"}
        for host, _colon, path in sources:
            source = self.machines[hosts[host]].path(path)
            eventually(source.exists, what=str(source))
            self.machines[hosts[target[0]]].write(f"{target[2]}{source.name}", source.read_text())

    def test_the_page(self) -> None:
        """Two users of one machine, then two machines."""
        one = self.machines["one"]
        for path, _where, text in files(ONE):
            one.write(path, text)
        self.run_commands(ONE)

        two = self.machines["two"] = self.stack.enter_context(Machine())
        one.connect(two)
        two.run("echo 10.0.0.1 api.example.org >> /etc/hosts")
        for path, where, text in files(TWO):
            machine = self.machines["one" if " on one" in where else "two"]
            before = machine.path(path).read_text() if where.startswith(" on one") else ""
            if "in place of its policy" in where:
                before, text = re.sub(r"(?m)^policy:.*\n", text, before), ""
            machine.write(path, before + text)
        self.run_commands(TWO)
