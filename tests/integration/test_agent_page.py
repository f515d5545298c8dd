"""``docs/agent.md``: its web server with files, followed by the letter on a machine of its own."""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.machine import Machine
from tests.peers.pages import File, page, steps
from tests.peers.programs import find
from tests.peers.waiting import eventually


class AgentPageTests(SynchronousTestCase):
    """Every file and every command of the section, in its order."""

    def test_the_page(self) -> None:
        """nginx shows the SVID, and a renewed one after its signal, as the unit has it sent."""
        find("nginx")
        _before, _, section = page("agent.md").partition("## Files for programs")
        followed = steps(section.partition("### What a reader sees")[0])
        self.assertEqual(5 + 3 + 5, len(followed))
        with Machine() as machine:
            for step in followed:
                if isinstance(step, File):
                    # Seconds in place of the hour of the page, so that there is a renewal.
                    machine.write(step.path, step.text.replace("ttl: 1h", "ttl: 20s"))
                else:
                    machine.follow(step)
            shown = followed[-1].text.partition(" | diff")[0]
            first = machine.run(shown)[1]
            self.assertRegex(first, r"\Aserial=[0-9A-F]+\n\Z")
            eventually(lambda: machine.run(shown)[1] not in (first, ""), 120)
            owner, mode = machine.run("stat -L -c '%U %a' /run/svc-agent/web/svid_key.pem")[1].split()
            self.assertEqual(("svc-agent", "600"), (owner, mode))
            status, capabilities = machine.run("grep Cap /proc/$(cat /run/svc-agent.pid)/status")
            self.assertEqual((0, {"21"}), (status, set(re.findall(r"Cap(?:Prm|Eff|Bnd|Amb):\t0+(\w+)", capabilities))))
