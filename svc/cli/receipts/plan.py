"""
What the flags of ``svc receipts`` mean together: where the records are, and which are wanted.

Owns the interface of a source. Opens nothing but the configuration of a proxy, of which only ``spiffeSocketPath`` and
the section ``notary`` are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from svc import naming, strictyaml
from svc.cli.errors import FileUnreadable, UsageRefused
from svc.cli.globals import GlobalOptions
from svc.cli.receipts.errors import RecordError, StatementGone
from svc.cli.verification_flags import parse_identities
from svc.envelope.envelope import Envelope
from svc.errors import printable
from svc.identity.spiffeid import SpiffeID
from svc.notary.artifact import ReceiptArtifact
from svc.notary.evidence import EvidenceFile
from svc.notary.exchange import ExchangeOutcome
from svc.settings import parse_duration
from svc.store.postgresql.address import SCHEME, DatabaseAddress
from svc.store.querytext import parse_client, parse_path, parse_status, parse_time, parse_topic
from svc.store.records import ReceiptQuery, RecordPosition

OUTCOMES: Final = tuple(outcome.value for outcome in ExchangeOutcome)
#: The most records of one list.
MAX_LISTED: Final = 100_000
_MAX_CONFIG: Final = 1024 * 1024
_SOURCES: Final = ("notary", "config", "from")
_MOMENT: Final = "a duration such as 30m, 1h or 7d, or a time such as 2026-11-22T20:00:00Z"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """
    Where the records are: a database, or a proxy.

    Args:
        database: the path of a file, or the URL of a server; empty for a proxy.
        url: of the proxy.
        expected: the identities of the proxy that are accepted; none means any of the own trust domain.
        pq_bundle: the post-quantum roots of the configuration; None without one.
    """

    options: GlobalOptions
    database: str = ""
    url: str = ""
    expected: tuple[SpiffeID, ...] = ()
    pq_bundle: str | None = None

    @classmethod
    def read(cls, values: Mapping[str, Any], options: GlobalOptions, environ: Mapping[str, str]) -> SourcePlan:
        """Find the one source that the flags name, else the configuration at its usual place."""
        given = [name for name in _SOURCES if values[name]]
        if len(given) > 1:
            raise UsageRefused(f"--{given[0]} and --{given[1]} name two sources", "give one of them")
        expected = parse_identities(values["expect_id"], naming.ENV_EXPECT_ID, environ, "--expect-id")
        if values["from"]:
            return cls(options, url=values["from"], expected=expected)
        if values["notary"]:
            return cls(options, database=_checked_database(values["notary"]))
        path = values["config"] or naming.DEFAULT_PROXY_CONFIG
        if not values["config"] and not os.path.exists(path):
            raise UsageRefused(
                f"no source of receipts was named, and there is no {path}",
                "name the database (--notary FILE), the proxy's configuration (--config FILE) or the proxy"
                " (--from https://host:port)",
            )
        return cls._configured(path, options)

    @classmethod
    def _configured(cls, path: str, options: GlobalOptions) -> SourcePlan:
        """The database of a configuration; its Workload API too, unless a flag or the environment names one."""
        config = _read_config(path)
        notary = config.get("notary")
        if not isinstance(notary, dict):
            raise RecordError("config_malformed", path=path, defect="it has no section notary")
        database = notary.get("database") or notary.get("path", naming.DEFAULT_NOTARY_DATABASE)
        socket, pq_bundle = config.get("spiffeSocketPath", options.spiffe_socket), notary.get("pqBundle")
        given = {"notary.path": database, "spiffeSocketPath": socket}
        if pq_bundle is not None:
            given["notary.pqBundle"] = pq_bundle
        for key, found in given.items():
            if not isinstance(found, str) or not found:
                raise RecordError("config_malformed", path=path, defect=f"{key} is {printable(repr(found), 80)}")
        if not options.socket_given:
            options = replace(options, spiffe_socket=socket)
        return cls(options, database=_checked_database(database), pq_bundle=pq_bundle)


@dataclass(frozen=True, slots=True)
class Record:
    """
    One record of a notary.

    Args:
        receipt: the signed receipt with its salts, None where the record is unsigned.
        statement: the statement that it names, None where the notary has it no more.
    """

    id: str
    payload: bytes
    receipt: ReceiptArtifact | None
    statement: Envelope | None

    def evidence(self) -> EvidenceFile:
        """The record as evidence; RecordError where it is unsigned, StatementGone where its signer is not known."""
        if self.receipt is None:
            raise RecordError("record_unsigned", key=self.id)
        if self.statement is None:
            raise StatementGone()
        return EvidenceFile(self.statement, self.receipt)


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: summaries, newest first, and where the list continues; None where nothing is left."""

    summaries: list[dict[str, Any]]
    next: RecordPosition | None


class ReceiptSource(Protocol):
    """Gives records; raises SvcError."""

    #: In messages.
    place: str
    #: Said where a list is empty.
    nothing: str

    async def find(self, query: ReceiptQuery) -> Page:
        """Find records; a page may have fewer than the limit, and continue all the same."""

    async def record(self, key: str) -> Record:
        """Find one record by its id, or by its nonce or ``jti``."""


def read_filters(values: Mapping[str, Any], now: datetime) -> ReceiptQuery:
    """Read the flags that select records; ``now`` is aware."""
    until = _read(values, "until", lambda text: _moment(text, now))
    since = _read(values, "since", lambda text: _moment(text, now))
    if since is not None and until is not None and since >= until:
        raise UsageRefused("nothing is between --since and --until", "--since is the earlier one")
    return ReceiptQuery(
        since=since,
        until=until,
        client=_read(values, "client", parse_client),
        status=_read(values, "status", parse_status),
        outcome=values["outcome"],
        path=_read(values, "path", lambda text: parse_path(os.fsencode(text))),
        topic=_read(values, "topic", lambda text: parse_topic(os.fsencode(text))),
    )


def _moment(text: str, now: datetime) -> int:
    try:
        return int(now.timestamp() - parse_duration(text))
    except ValueError:
        pass
    try:
        return parse_time(text)
    except ValueError as error:
        raise ValueError(_MOMENT) from error


def _read(values: Mapping[str, Any], name: str, parse: Callable[[str], T]) -> T | None:
    text = values[name]
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise UsageRefused(f'--{name} does not accept "{text}"', f"expected: {error}") from error


def _checked_database(text: str) -> str:
    """Check the URL of a server; the message repeats nothing of it, since it may have a password."""
    if text.startswith(SCHEME):
        try:
            DatabaseAddress.parse(text)
        except ValueError as error:
            raise UsageRefused("the URL of the database cannot be used", f"expected: {error}") from error
    elif "://" in text:
        raise UsageRefused(
            "--notary takes a file or a postgresql:// URL", "--from https://host:port reads from a proxy"
        )
    return text


def _read_config(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_CONFIG)
    except OSError as error:
        raise FileUnreadable(path=path, detail=(error.strerror or str(error)).lower()) from error
    except UnicodeDecodeError as error:
        raise RecordError("config_malformed", path=path, defect="it is not UTF-8") from error
    try:
        document = strictyaml.loads(text)
    except strictyaml.YamlRefused as error:
        raise RecordError("config_malformed", path=path, defect=error.defect) from error
    return document if isinstance(document, dict) else {}
