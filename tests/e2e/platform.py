"""
A cluster with the images of this checkout, and a shell in which the commands of a page run as its reader runs them.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack
from typing import Any

from twisted.trial.unittest import SkipTest

from clusters.cluster import Cluster
from clusters.kubernetes import ToolMissing, folder_of
from images.__main__ import build
from images.cache import ImageFailed
from tests.peers.folders import short_folder
from tests.peers.running_cluster import cluster_up
from tests.peers.waiting import TOP

NEEDS_TOOLS = ("kubernetes", "spire")
IMAGES = ("svc", "svc-manager", "spire-server", "spire-agent")
_MARK = "command-ended"


class Platform:
    """
    A running cluster.

    Args:
        stack: ends it.
        name: of the cluster.
        imported: whether its node has the images; else it pulls them.

    Attributes:
        images: the folder with what ``bin/image`` makes.
    """

    def __init__(self, stack: ExitStack, name: str, *, imported: bool = True) -> None:
        if os.geteuid() != 0:
            raise SkipTest("a cluster needs root")
        self.images = short_folder(stack)
        try:
            for image in IMAGES:
                build(image, self.images)
        except ImageFailed as error:
            raise SkipTest(str(error)) from error
        self.cluster = cluster_up(name, images=[self.images / f"{image}.tar" for image in IMAGES if imported])
        stack.callback(self.cluster.down)
        self.shell = Shell(stack, self.cluster)

    def kubectl(self, *arguments: str, data: str = "") -> str:
        """Run kubectl, which must succeed; gives what it printed."""
        return self.cluster.kubectl(*arguments, data=data)

    def json(self, *arguments: str) -> Any:
        """What ``kubectl get`` finds, parsed."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start kubectl with its output in a pipe."""
        command = self.cluster.kubectl_command(*arguments)
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )


class Shell:
    """
    One bash in a folder that shows what is in the checkout, with kubectl on its path.

    What a command writes into its working directory is not written into the checkout.

    Args:
        stack: ends it.
        cluster: whose kubeconfig it has.
    """

    def __init__(self, stack: ExitStack, cluster: Cluster) -> None:
        try:
            tools = folder_of("kubernetes")
        except ToolMissing as missing:
            raise SkipTest(str(missing)) from missing
        path = f"{tools}:{os.environ['PATH']}"
        self.folder = short_folder(stack)
        for each in TOP.iterdir():
            (self.folder / each.name).symlink_to(each)
        self._process = subprocess.Popen(
            ["bash"],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        stack.callback(self._process.kill)

    def run(self, command: str) -> tuple[int, str]:
        """Run a command; gives its status and all that it printed."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(f"{{ {command}\n}} </dev/null; printf '\\n%s %d\\n' {_MARK} $?\n")
        stdin.flush()
        lines: list[str] = []
        for line in stdout:
            if line.startswith(_MARK):
                return int(line.split()[1]), "".join(lines)
            lines.append(line)
        raise AssertionError(f"the shell ended: {''.join(lines)}")
