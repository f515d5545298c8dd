"""A real Prometheus with given targets, and its ``promtool``."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.peers.folders import short_folder
from tests.peers.programs import find, run
from tests.peers.waiting import free_port
from tests.peers.webapp import serve


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
        targets: the loopback port that it scrapes, by the name of its job; or whole scrape configurations.
        rules: the file of its alerts.
        interval: the seconds between two scrapes.
    """

    def __init__(
        self,
        stack: ExitStack,
        targets: Mapping[str, int] | Sequence[Mapping[str, Any]],
        rules: Path,
        interval: int = 2,
    ) -> None:
        folder = short_folder(stack)
        config = folder / "prometheus.yml"
        every = f"{interval}s"
        times = {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every}
        if isinstance(targets, Mapping):
            targets = [
                {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
                for name, port in targets.items()
            ]
        # JSON is YAML.
        content = {"global": times, "rule_files": [str(rules)], "scrape_configs": list(targets)}
        config.write_text(json.dumps(content))
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

    def pools(self) -> dict[str, tuple[int, int]]:
        """
        Ask what became of the targets that were found.

        Returns:
            By the name of each job how many targets were found, and how many of them its relabelling keeps.
        """
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            page = answer.read().decode()
        found = dict(re.findall(r'^prometheus_sd_discovered_targets{config="(.+)",name="scrape"} (\d+)$', page, re.M))
        kept = dict(re.findall(r'^prometheus_target_scrape_pool_targets{scrape_job="(.+)"} (\d+)$', page, re.M))
        return {name: (int(number), int(kept[name])) for name, number in found.items()}

    def alerts(self) -> set[str]:
        """
        Ask which alerts it has loaded.

        Returns:
            Their names.
        """
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/rules", timeout=60) as answer:
            groups = json.loads(answer.read())["data"]["groups"]
        return {rule["name"] for group in groups for rule in group["rules"]}
