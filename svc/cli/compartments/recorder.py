"""What the audit log has of one command of kubectl: its start, what was decided about it, and its end."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from svc.compartments.config import Active, Config, at_home
from svc.compartments.errors import CompartmentError
from svc.compartments.targets import MAX_NAMED, Target
from svc.compartments.verbs import mutates
from svc.errors import printable

if TYPE_CHECKING:
    from svc.cli.output import Console

_LEVELS: Final = ("debug", "info", "warn", "error")
#: The level of each decision.
_DECISIONS: Final = {"allow": "debug", "warn": "warn", "forced": "warn", "deny": "error"}


class Recorder:
    """
    Records one command.

    Args:
        console: for warnings.

    Attributes:
        supervises: whether kubectl has to run below this process, so that its exit status can be recorded.
    """

    def __init__(self, words: Sequence[str], config: Config, active: Active, console: Callable[[], Console]) -> None:
        self._log = config.audit
        self._config_path = config.path
        self._console = console
        self._required = mutates(words)
        self._began = time.monotonic()
        self._facts = self._described(words, active) if self._log.enabled else {}
        self._failed = False
        self.supervises = self._log.enabled and self._required

    def _described(self, words: Sequence[str], active: Active) -> dict[str, Any]:
        import pwd

        from svc.compartments.redaction import redacted

        self._path = at_home(self._log.path, os.environ)
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = ""
        return {
            "id": os.urandom(8).hex(),
            "pid": os.getpid(),
            "uid": os.getuid(),
            "user": user,
            "context": active.name,
            "compartment": active.compartment.label,
            "kubeContext": active.kube_context,
            "namespace": active.namespace,
            "verb": words[0],
            "argv": redacted(words),
        }

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record the end of a command if it ends within this."""
        try:
            yield
        except BaseException as error:
            self._end(error)
            raise

    def start(self, active: Active) -> None:
        """
        Record the start of a command.

        Args:
            active: as whom it works.

        Raises:
            CompartmentError: ``audit_log_unwritable``; a command that changes nothing goes on after a warning.
        """
        self._facts["identity"] = active.identity
        self._write("info", "command.start", self._required)

    def decide(self, decision: str, targets: Sequence[Target], found: Sequence[str] = ()) -> None:
        """
        Record a decision before it has an effect.

        Args:
            decision: ``allow``, ``warn``, ``forced`` or ``deny``.
            targets: what it is about.
            found: what else is to be said of that.

        Raises:
            CompartmentError: as :meth:`start`.
        """
        about = [
            {"kind": each.kind, "namespace": each.namespace, "name": each.name, "compartment": each.label}
            for each in targets[:MAX_NAMED]
        ]
        facts = {
            "decision": decision,
            "targets": about,
            "total": len(targets),
            "found": [printable(each) for each in found[:MAX_NAMED]],
        }
        self._write(_DECISIONS[decision], "command.decision", self._required, **facts)

    def _end(self, error: BaseException) -> None:
        from svc.cli.errors import CommandFailed

        if isinstance(error, SystemExit):
            status, reason = error.code if isinstance(error.code, int) else int(error.code is not None), ""
        else:
            cause = error.error if isinstance(error, CommandFailed) else error
            status, reason = 1, getattr(cause, "reason", type(cause).__name__)
        milliseconds = round((time.monotonic() - self._began) * 1000)
        level = "error" if status else "info"
        self._write(level, "command.end", False, exitCode=status, reason=reason, durationMs=milliseconds)

    def _write(self, level: str, event: str, required: bool, **more: Any) -> None:
        if not self._log.enabled or self._failed:
            return
        from svc.cli.compartments.auditfile import append

        now = time.time()
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        wanted = _LEVELS.index(level) >= _LEVELS.index(self._log.level)
        record = {"ts": f"{seconds}.{int(now % 1 * 1000):03}Z", "level": level, "event": event, **self._facts, **more}
        try:
            append(self._path, record if wanted else None)
        except OSError as error:
            self._failed = True
            detail = (error.strerror or str(error)).lower()
            refused = CompartmentError("audit_log_unwritable", path=self._path, detail=detail, config=self._config_path)
            if required:
                raise refused from error
            self._console().warn(str(refused))
