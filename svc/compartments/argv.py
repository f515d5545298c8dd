"""
How the words of a kubectl command are read, where that matters: flags with their values, and the other words.

The rules are those of pflag, as kubectl uses it: flags stand anywhere before ``--``, short ones may share a word, the
last of several values wins, and an underscore in a name is a dash.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Final, NamedTuple

from svc.compartments.errors import CompartmentError

#: The flags of every command: which cluster is asked, and as whom.
_CONNECTION: Final = """
as= as-group= as-uid= as-user-extra= cache-dir= certificate-authority= client-certificate= client-key= cluster= context=
disable-compression insecure-skip-tls-verify kubeconfig= n/namespace= password= request-timeout= s/server=
tls-server-name= token= user= username=
"""
#: The other flags of every command.
_COMMON: Final = """
h/help kuberc= log-flush-frequency= match-server-version profile= profile-output= v/v= vmodule= warnings-as-errors
"""
#: The flags of kubectl by its command: their one letter, and a sign of equality where a value follows. That of a flag
#: without the sign may be given in the same word, as ``--watch=false`` and ``--cascade=orphan``.
_FLAGS: Final = {
    "apply": """
        all allow-missing-template-keys cascade dry-run field-manager= f/filename= force force-conflicts grace-period=
        k/kustomize= openapi-patch o/output= overwrite prune prune-allowlist= R/recursive l/selector= server-side
        show-managed-fields subresource= template= timeout= validate wait
    """,
    "get": """
        A/all-namespaces allow-missing-template-keys chunk-size= field-selector= f/filename= ignore-not-found
        k/kustomize= L/label-columns= no-headers o/output= output-watch-events raw= R/recursive l/selector= server-print
        show-kind show-labels show-managed-fields sort-by= subresource= template= w/watch watch-only
    """,
    "exec": "c/container= f/filename= pod-running-timeout= q/quiet i/stdin t/tty",
    "logs": """
        all-containers all-pods c/container= f/follow ignore-errors insecure-skip-tls-verify-backend limit-bytes=
        max-log-requests= pod-running-timeout= prefix p/previous l/selector= since= since-time= tail= timestamps
    """,
    "cp": "c/container= no-preserve retries=",
    "port-forward": "address= pod-running-timeout=",
    "delete": """
        all A/all-namespaces cascade dry-run field-selector= f/filename= force grace-period= ignore-not-found
        i/interactive k/kustomize= now o/output= raw= R/recursive l/selector= timeout= wait
    """,
}
#: The flags of ours; they have no letter.
_OURS: Final = {
    "apply": "force kubectl-force",
    "get": "filter-compartment current-compartment compartment= exclude-current-compartment",
    "exec": "force",
    "delete": "force kubectl-force",
}
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def read_boolean(flag: str, value: str | None) -> bool:
    """
    Read the value of a flag that is true or false, as ``strconv.ParseBool`` of Go; true where it has none.

    Raises:
        CompartmentError: ``flag_value_invalid``.
    """
    if value is not None and value not in _TRUE and value not in _FALSE:
        raise CompartmentError("flag_value_invalid", flag=flag, value=value, expected="true or false")
    return value is None or value in _TRUE


class Given(NamedTuple):
    """
    A flag that was given.

    Args:
        value: None where it has none.
        start: the first of its words.
        stop: behind its last word.
    """

    name: str
    value: str | None
    start: int
    stop: int

    @property
    def word(self) -> str:
        """The flag as one word."""
        return f"--{self.name}" if self.value is None else f"--{self.name}={self.value}"


@dataclass(frozen=True, slots=True)
class CommandLine:
    """
    The words of one command.

    Args:
        words: all of them, the command first.
        places: of those that are no flags, behind the command and in front of ``--``.
        end: the place of ``--``, or behind the last word.
        unknown: flags that the command is not known to have.
    """

    words: tuple[str, ...]
    places: tuple[int, ...]
    flags: tuple[Given, ...]
    end: int
    unknown: tuple[str, ...]

    @property
    def arguments(self) -> list[str]:
        """The words that are no flags, in front of ``--`` and behind it."""
        return [*(self.words[place] for place in self.places), *self.words[self.end + 1 :]]

    @property
    def incomplete(self) -> bool:
        """Whether the last word is a flag without the value that it needs."""
        return any(each.stop > len(self.words) for each in self.flags)

    def values(self, name: str) -> list[str]:
        """The values of a flag, in their order."""
        return [each.value or "" for each in self.flags if each.name == name]

    def last(self, name: str) -> str:
        """The value that counts; empty where there is none."""
        return (self.values(name) or [""])[-1]

    def has(self, name: str) -> bool:
        """Whether a flag was given, with whatever value."""
        return any(each.name == name for each in self.flags)

    def is_set(self, name: str) -> bool:
        """
        Whether a flag that is true or false is true.

        Raises:
            CompartmentError: ``flag_value_invalid``.
        """
        found = [read_boolean(name, each.value) for each in self.flags if each.name == name]
        return bool(found) and found[-1]

    def reads_input(self) -> bool:
        """Whether standard input is one of the files."""
        return any("-" in each.split(",") for each in self.values("filename"))

    def connection(self) -> list[str]:
        """The flags that say which cluster is asked, and as whom, each as one word."""
        names = _table(_CONNECTION).names
        return [each.word for each in self.flags if each.name in names]

    def without(self, names: Collection[str], added: Sequence[str] = ()) -> list[str]:
        """The words without some flags, which have no letter, and with others at the end of the flags."""
        left = {place for each in self.flags if each.name in names for place in range(each.start, each.stop)}
        kept = [word for place, word in enumerate(self.words[: self.end]) if place not in left]
        return [*kept, *added, *self.words[self.end :]]

    def rebuilt(self, arguments: Sequence[str], without: Collection[str], added: Sequence[str] = ()) -> list[str]:
        """The command with other arguments, without some flags, and with others; ``--`` is left out."""
        flags: list[str] = []
        for start, group in groupby(self.flags, key=lambda each: each.start):
            given = list(group)
            kept = [each for each in given if each.name not in without]
            whole = len(kept) == len(given)
            flags += self.words[start : given[-1].stop] if whole else [each.word for each in kept]
        return [self.words[0], *arguments, *flags, *added]


class _Table(NamedTuple):
    names: frozenset[str]
    valued: frozenset[str]
    letters: dict[str, str]


@cache
def _table(text: str) -> _Table:
    letters, names, valued = {}, set(), set()
    for word in text.split():
        letter, _slash, name = word.rpartition("/")
        if name.endswith("="):
            name = name[:-1]
            valued.add(name)
        names.add(name)
        if letter:
            letters[letter] = name
    return _Table(frozenset(names), frozenset(valued), letters)


def known_flags(verb: str) -> tuple[frozenset[str], frozenset[str], dict[str, str]]:
    """The flags of a command of kubectl: their names, those that a value follows, and names by letters."""
    return _table(_CONNECTION + _COMMON + _FLAGS[verb])


def all_flags() -> tuple[frozenset[str], frozenset[str]]:
    """The names of the flags of all commands whose flags are known, and those that a value follows in one of them."""
    return _table(" ".join((_CONNECTION, _COMMON, *_FLAGS.values(), *_OURS.values())))[:2]


def ours(verb: str) -> frozenset[str]:
    """The names of the flags of a command that are ours."""
    return _table(_OURS.get(verb, "")).names


def without_ours(words: Sequence[str]) -> list[str]:
    """The words of any command without the flags that are ours."""
    return read_words(words).without(ours(words[0])) if words[0] in _OURS else list(words)


def read_words(words: Sequence[str]) -> CommandLine:
    """Read the words of one of the commands whose flags are known."""
    verb = words[0]
    table = _table(" ".join((_CONNECTION, _COMMON, _FLAGS[verb], _OURS.get(verb, ""))))
    places: list[int] = []
    flags: list[Given] = []
    unknown: list[str] = []
    place = 1
    while place < len(words) and words[place] != "--":
        word = words[place]
        following = words[place + 1] if place + 1 < len(words) else ""
        stop = place + 1
        if len(word) < 2 or word[0] != "-":
            places.append(place)
        else:
            for name, value in _split(word, table):
                if name not in table.names:
                    unknown.append(word)
                elif value is None and name in table.valued:
                    stop = place + 2
                    flags.append(Given(name, following, place, stop))
                else:
                    flags.append(Given(name, value, place, stop))
        place = stop
    end = min(place, len(words))
    return CommandLine(tuple(words), tuple(places), tuple(flags), end, tuple(unknown))


def _split(word: str, table: _Table) -> Iterator[tuple[str, str | None]]:
    """The flags of one word, with what it has of their values."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        yield name.replace("_", "-"), value if equals else None
        return
    rest = word[1:]
    while rest:
        letter, rest = rest[0], rest[1:]
        name = table.letters.get(letter, "")
        if rest.startswith("="):
            yield name, rest[1:]
            return
        if name in table.valued and rest:
            yield name, rest
            return
        yield name, None
        if not name:  # what follows may be its value
            return
