"""
The policies in force, and the reading of their files again when they change.

Owns when files are read: in a thread, since a disk that hangs must not stop the proxy. What is not valid as a whole
leaves the policies in force; the files of a namespace beside those of its cluster are a whole of their own.
Configurations are those of the proxy, or of the broker, whose files are deny lists.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.policyfiles.files import FileStamps, PolicyFiles, PolicyFilesRefused, file_stamps
from svc.policyfiles.settings import Policies
from svc.settings import ConfigInvalid

#: Seconds between two looks at the files; what has changed is read when it is the same at two looks, so that no file is
#: read while it is written.
CHECK_EVERY: Final = 1.0

#: Runs blocking work elsewhere; fires with its result.
InThread = Callable[[Callable[[], Any]], "Deferred[Any]"]


class PolicySection(Protocol):
    """The section ``policy`` of a configuration."""

    @property
    def files(self) -> Sequence[str]:
        """Patterns of files."""


class WatchedSettings(Protocol):
    """A configuration with policy files."""

    @property
    def policy(self) -> PolicySection:
        """The section; the same policies are in force while it and the files are the same."""


S = TypeVar("S", bound=WatchedSettings)
S_contra = TypeVar("S_contra", bound=WatchedSettings, contravariant=True)


#: Reads the policies of a configuration; of those in force what is not valid now may stay.
Read = Callable[[S, "PolicyFiles | None"], Policies]


class PolicyObserver(Protocol[S_contra]):
    """Receives what becomes of policy files; implemented by the logging module."""

    def policies_applied(self, policies: Policies, settings: S_contra, *, reloaded: bool) -> None:
        """Policies are in force: those of the start, or others than before."""

    def policies_rejected(self, error: SvcError, *, repeated: bool) -> None:
        """Changed files are not valid; ``repeated``: for the reason that was reported last."""


@dataclass(frozen=True)
class _Look:
    """What a look at the files found: their stamps, and the policies where those were read."""

    stamps: FileStamps
    policies: Policies | None = None
    error: SvcError | None = None


class PolicyWatch(Service, Generic[S]):
    """
    The policies in force.

    Args:
        settings: the configuration; its files are read at once.
        read: reads the policies of a configuration, beside which what is in force may stay in part; blocks.
        apply: called with other policies after a change of files, or of what was offered.
        watched: the files of a configuration that what is read depends on; by default its policy files.
    """

    log = Logger()

    def __init__(
        self,
        settings: S,
        *,
        read: Read[S],
        apply: Callable[[Policies], None],
        observer: PolicyObserver[S],
        clock: Any,
        in_thread: InThread,
        watched: Callable[[S], Sequence[str]] = lambda settings: settings.policy.files,
    ) -> None:
        self._read = read
        self._watched = watched
        self._apply = apply
        self._observer = observer
        self._in_thread = in_thread
        self._settings = settings
        # Before the files are read: what changes meanwhile is found by the first look.
        self._tried = self._seen = file_stamps(self._watched(settings))
        self.current = read(settings, None)
        #: Those of a configuration that is about to be applied, and the stamps of their files.
        self._next: tuple[S, Policies] | None = None
        self._loaded_stamps, self._loaded_by = self._seen, read
        self._reported = ""
        self._looking = LoopingCall(self._look)
        self._looking.clock = clock

    def startService(self) -> None:
        """Report the policies, and begin to look at their files."""
        super().startService()
        self._observer.policies_applied(self.current, self._settings, reloaded=False)
        self._looking.start(CHECK_EVERY, now=False).addErrback(
            lambda failure: self.log.failure("policy files are not checked for changes any more", failure)
        )

    def stopService(self) -> None:
        """Look no more."""
        super().stopService()
        if self._looking.running:
            self._looking.stop()

    def policies_of(self, settings: S) -> Policies:
        """Those of a configuration that was loaded last, else those in force."""
        return self._next[1] if self._next is not None and self._next[0] is settings else self.current

    # -- A reload of the configuration -------------------------------------------------------------------------------

    async def load(self, settings: S) -> Policies:
        """
        Read the policies of a configuration that may be applied.

        Raises:
            ConfigUnreadable, PolicyFilesRefused: the files are not valid.
        """
        loaded: tuple[FileStamps, Policies]
        self._loaded_by = self._read
        try:
            loaded = await self._in_thread(partial(self._whole, self._read, settings, None))
        except SvcError as error:
            # The refused reload is logged where it is decided on.
            self._observer.policies_rejected(error, repeated=True)
            raise
        self._loaded_stamps, policies = loaded
        self._next = (settings, policies)
        return policies

    def _whole(self, read: Read[S], settings: S, former: PolicyFiles | None) -> tuple[FileStamps, Policies]:
        stamps = file_stamps(self._watched(settings))
        try:
            return stamps, read(settings, former)
        except SvcError as error:
            raise _named(error) from error

    def take(self, settings: S, policies: Policies) -> bool:
        """Put loaded policies into force; returns whether they differ from those before."""
        before, self._settings, self._next = self._settings, settings, None
        # Not what a look has seen since, or what was offered since: that is read by the looks that follow.
        self._tried, self._reported = self._loaded_stamps if self._loaded_by is self._read else (), ""
        return self._put(policies, changed=before.policy != settings.policy)

    def _put(self, policies: Policies, *, changed: bool = False) -> bool:
        if not changed and policies.files.digest == self.current.files.digest:
            return False
        self.current = policies
        self._observer.policies_applied(policies, self._settings, reloaded=True)
        return True

    # -- Policies of another origin than files -------------------------------------------------------------------------

    async def offer(self, read: Read[S]) -> None:
        """
        Read policies in another way from now on, if what is read is valid; else the policies in force stay.

        Raises:
            SvcError: they are not valid.
        """
        settings: S | None = None
        # A reload of the configuration may end meanwhile.
        while settings is not self._settings:
            settings = self._settings
            try:
                stamps, policies = await self._in_thread(partial(self._whole, read, settings, self.current.files))
            except SvcError as error:
                self._rejected(error)
                raise
        self._read, self._tried = read, stamps
        self._take_read(policies)

    # -- Changed files -----------------------------------------------------------------------------------------------

    def _look(self) -> Deferred[None] | None:
        settings, tried, seen, former = self._settings, self._tried, self._seen, self.current.files
        if not self._watched(settings):
            return None

        def look() -> _Look:
            stamps = file_stamps(self._watched(settings))
            if stamps == tried or stamps != seen:
                return _Look(stamps)
            try:
                return _Look(stamps, self._read(settings, former))
            except SvcError as error:
                return _Look(stamps, error=_named(error))

        def looked(found: _Look) -> None:
            # Otherwise a reload of the configuration has read them meanwhile.
            if self.running and self._settings is settings and self._tried is tried:
                self._looked(found)

        # An error must not end the looks that follow.
        found: Deferred[None] = self._in_thread(look).addCallback(looked)
        return found.addErrback(lambda failure: self.log.failure("changed policy files could not be applied", failure))

    def _looked(self, found: _Look) -> None:
        self._seen = found.stamps
        if found.error is not None:
            self._tried = found.stamps
            self._rejected(found.error)
        elif found.policies is not None:
            self._tried = found.stamps
            self._take_read(found.policies)

    def _take_read(self, policies: Policies) -> None:
        """Put what was read into force, and report what of it stayed as it was."""
        refused = policies.files.refused
        if refused is None:
            self._reported = ""
        else:
            self._rejected(_named(refused))
        if self._put(policies):
            self._apply(policies)

    def _rejected(self, error: SvcError) -> None:
        text = str(error)
        self._observer.policies_rejected(error, repeated=text == self._reported)
        self._reported = text


def in_daemon_thread(reactor: IReactorFromThreads, name: str = "svc-policy") -> InThread:
    """Run each work in a thread of its own of this name, which the end of the process does not wait for."""

    def start(work: Callable[[], Any]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()

        def run() -> None:
            try:
                result = work()
            except Exception:  # noqa: BLE001 (whatever happened belongs to the one who gave the work)
                result = Failure()
            reactor.callFromThread(done.callback, result)

        threading.Thread(target=run, name=name, daemon=True).start()
        return done

    return start


def _named(error: SvcError) -> SvcError:
    """An error with all defects in one line, and the file that has them."""
    if not isinstance(error, ConfigInvalid):
        return error
    defects = "; ".join(str(each) for each in error.problems)
    return PolicyFilesRefused("policy_file_invalid", path=error.path, defects=defects)
