"""The commands of ``svc`` by name; this module imports nothing, so that the entry point can decide quickly."""

from __future__ import annotations

from typing import Final

#: Name of a command: module and attribute, its line in the help of the root, whether it is shown there.
COMMANDS: Final[dict[str, tuple[str, str, bool]]] = {
    "broker": ("svc.cli.broker:command", "manage the users of svc-broker", True),
    "check": ("svc.cli.check.command:command", "find what is wrong between workloads and their identities", True),
    "completion": ("svc.cli.completion:command", "print a shell completion script", True),
    "context": ("svc.cli.compartments.context:command", "list, select, create and delete contexts", True),
    "curl": (
        "svc.cli.curl.command:command",
        "send one HTTP request and verify who answered and the signed receipt",
        True,
    ),
    "federation": ("svc.cli.federation.command:command", "federate with other trust domains", True),
    "files": ("svc.cli.files:command", "print where the files for other programs are", True),
    "help": ("svc.cli.root:help_command", "help about any command", True),
    "identity": ("svc.cli.compartments.identity:command", "print the compartment, the user and the groups", True),
    "install": ("svc.cli.install.command:command", "install the platform on a cluster", True),
    "license": ("svc.cli.license.command:command", "look at licenses and install them", True),
    "mqtt": ("svc.cli.mqtt.command:command", "look at the MQTT messages that a proxy stores", True),
    "receipts": ("svc.cli.receipts.command:command", "list, show and export the records of a notary", True),
    "status": ("svc.cli.status.command:command", "show the proxies, brokers and authorities that run here", True),
    "policy": ("svc.cli.policy.command:command", "check policy files and explain their decisions", True),
    "verify": ("svc.cli.verify:command", "verify saved evidence offline", True),
    "version": ("svc.cli.root:version_command", "print the version", True),
    "__complete": ("svc.cli.completion:complete_command", "answer a shell's question", False),
}
