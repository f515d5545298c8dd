"""Pages of the documentation that show files, and commands with their output, for tests that follow them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.peers.waiting import TOP

#: A prompt may begin with the name of a machine.
_PROMPT = r"(?:one|two)?[#$] "
_COMMAND = re.compile(rf"^({_PROMPT})((?:.*\\\n)*.*)\n((?:(?!{_PROMPT}).*\n)*)", re.MULTILINE)


@dataclass(frozen=True)
class File:
    """A file with its path, what the first line says behind that, and its content."""

    path: str
    remark: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command with its prompt, the name of its machine (empty where there is one), and the output that is shown."""

    machine: str
    prompt: str
    text: str
    output: str

    @property
    def pattern(self) -> str:
        """What the output must match: an ellipsis alone in a line stands for any lines, and in a line for any text."""
        lines = self.output.splitlines(keepends=True)
        shown = ["(?:.*\n)*" if line == "…\n" else re.escape(line).replace("…", ".*") for line in lines]
        return rf"\A{''.join(shown)}\Z"


def page(name: str) -> str:
    """Read a page."""
    return (TOP / "docs" / name).read_text()


def steps(text: str) -> list[File | Command]:
    """
    What a reader does, in the order of the page: the files to write, and the commands.

    Raises:
        AssertionError: a block of commands begins without a prompt.
    """
    found: list[File | Command] = []
    for kind, block in re.findall(r"^```(yaml|hcl|nginx|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if kind == "console":
            assert re.match(_PROMPT, block), block
            found += [Command(prompt[:-2], prompt[-2], *rest) for prompt, *rest in _COMMAND.findall(block)]
        elif first := re.match(r"# (/[^\s:]+):? ?(.*)\n", block):
            found.append(File(first[1], first[2], block[first.end() :]))
    return found
