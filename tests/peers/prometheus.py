"""A real Prometheus with given targets, and its ``promtool``."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.peers.folders import short_folder
from tests.peers.programs import find, run
from tests.peers.waiting import free_port
from tests.peers.webapp import serve

_CONFIG = """
global: {{scrape_interval: {interval}s, scrape_timeout: {interval}s, evaluation_interval: {interval}s}}
rule_files: ["{rules}"]
scrape_configs:
"""
_JOB = """
  - job_name: {name}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def promtool(*arguments: str | Path, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """
    Run ``promtool``.

    Args:
        arguments: behind its name.
        data: its standard input.

    Returns:
        Exit status and what it wrote.
    """
    return run([find("promtool"), *arguments], data=data)


class RunningPrometheus:
    """
    One Prometheus.

    Args:
        stack: ends it.
        targets: the port that it scrapes, by the name of its job.
        rules: the file of its alerts.
        interval: the seconds between two scrapes.
    """

    def __init__(self, stack: ExitStack, targets: Mapping[str, int], rules: Path, interval: int = 2) -> None:
        folder = short_folder(stack)
        config = folder / "prometheus.yml"
        jobs = "".join(_JOB.format(name=name, port=port) for name, port in targets.items())
        config.write_text(_CONFIG.format(interval=interval, rules=rules) + jobs)
        self.port = free_port()
        serve(
            stack,
            [
                find("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            self.port,
        )

    def ask(self, query: str) -> dict[str, float]:
        """
        Ask for an instant vector.

        Args:
            query: in PromQL.

        Returns:
            The values by the name of their series; empty before it is ready.
        """
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                found = json.loads(answer.read())["data"]["result"]
        except OSError:
            return {}
        return {json.dumps(each["metric"], sort_keys=True): float(each["value"][1]) for each in found}

    def alerts(self) -> set[str]:
        """
        Ask which alerts it has loaded.

        Returns:
            Their names.
        """
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/rules", timeout=60) as answer:
            groups = json.loads(answer.read())["data"]["groups"]
        return {rule["name"] for group in groups for rule in group["rules"]}
