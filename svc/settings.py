"""
Configurations: strict YAML 1.2 of a file or an environment variable, validated as a whole.

Reports every defect of a file: the key, its value and what was expected. The configurations themselves are pydantic
models built from :class:`Settings`, next to the code that they configure.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Strict, ValidationError

from svc import strictyaml
from svc.errors import SvcError, printable

MAX_FILE: Final = 1024 * 1024


class ConfigUnreadable(SvcError):
    """the configuration {path} cannot be read: {what}"""

    reason = "config_unreadable"
    hint = "check the path, its permissions, and that it is YAML"


class ConfigVariableMissing(ConfigUnreadable):
    """the configuration {path} cannot be read: this process has no environment variable of that name"""

    hint = "set it for this process, in Kubernetes in env of its container; a file of that name is given as ./{path}"


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """
    One defect of a configuration.

    Args:
        key: the path of the key, such as ``listeners[0].listen``.
        value: the value as text, or None when it is missing.
        expected: what would have been accepted.
    """

    key: str
    value: str | None
    expected: str

    def __str__(self) -> str:
        found = "missing" if self.value is None else printable(self.value, 80)
        return f"{printable(self.key)}: {found}: expected {printable(self.expected)}"


class ConfigInvalid(SvcError):
    """{path} has {count} problem(s): {first}"""

    reason = "config_invalid"

    def __init__(self, path: str, problems: tuple[ConfigProblem, ...]) -> None:
        super().__init__(path=path, count=len(problems), first=problems[0])
        self.path = path
        self.problems = problems


class Settings(BaseModel):
    """The base class of configuration models: frozen, no unknown keys, no conversion of text to numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=False)

    def key_text(self, key: str) -> str:
        """
        Name a key in an error about its value.

        Args:
            key: the key.

        Returns:
            The key, with a note where its value is the default.
        """
        return key if key in self.model_fields_set else f"{key} (the default)"


@dataclass(frozen=True, slots=True, eq=False)
class ValueFormat:
    """
    How a value is written in the file when the model has another type: metadata of an annotated type.

    The reference tables and the JSON Schema for editors are generated from it; validation does not use it.

    Args:
        kind: its name in the reference, such as ``duration``.
        schema: the JSON Schema of the value in the file.
        show: formats a value of the model as in the file.
    """

    kind: str
    schema: Mapping[str, object]
    show: Callable[[Any], str] = str

    def __get_pydantic_json_schema__(self, _core: object, _inner: object) -> dict[str, object]:
        return dict(self.schema)


def text_format(kind: str, pattern: str, show: Callable[[Any], str] = str) -> ValueFormat:
    """Return the format of a text that matches a regular expression of JSON Schema."""
    return ValueFormat(kind, {"type": "string", "pattern": pattern}, show)


#: A hundred years: the sum of a time and a duration is always a valid date.
MAX_DURATION: Final = 36500 * 86400.0
#: What a signed 64-bit counter holds.
MAX_SIZE: Final = 2**63 - 1

_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)\Z")
_DURATION_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE: Final = re.compile(r"([0-9]{1,19})(B|KiB|MiB|GiB)\Z")
_SIZE_UNITS: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_duration(value: object) -> float:
    """
    Parse a duration such as ``250ms``, ``10s``, ``5m``, ``1h`` or ``90d``, at most a hundred years, into seconds.

    Raises:
        ValueError: the text says what was expected.
    """
    if isinstance(value, str) and (match := _DURATION.match(value)):
        seconds = float(match[1]) * _DURATION_UNITS[match[2]]
        if seconds <= MAX_DURATION:
            return seconds
    raise ValueError("a duration with its unit, such as 250ms, 10s, 5m, 1h or 90d, up to 36500d")


def parse_size(value: object) -> int:
    """
    Parse a size such as ``512B``, ``4KiB``, ``16MiB`` or ``1GiB``, below 2^63 octets, into octets.

    Raises:
        ValueError: the text says what was expected.
    """
    if isinstance(value, str) and (match := _SIZE.match(value)):
        octets = int(match[1]) * _SIZE_UNITS[match[2]]
        if octets <= MAX_SIZE:
            return octets
    raise ValueError("a size with its unit, such as 512B, 4KiB, 16MiB or 1GiB, below 2^63 octets")


def format_duration(seconds: float) -> str:
    """Format seconds as in a file, in the largest unit that needs no fraction: ``90d``, ``1h``."""
    spans = [(seconds / size, name) for name, size in _DURATION_UNITS.items()]
    number, name = next((each for each in reversed(spans) if each[0] >= 1 and each[0].is_integer()), (seconds, "s"))
    return f"{number:.15g}{name}"


def format_size(octets: int) -> str:
    """Format octets as in a file, in the largest unit that needs no fraction: ``32KiB``."""
    units = reversed(_SIZE_UNITS.items())
    name, size = next((each for each in units if octets >= each[1] and octets % each[1] == 0), ("B", 1))
    return f"{octets // size}{name}"


@dataclass(frozen=True, slots=True)
class HostPort:
    """
    A TCP address of a configuration.

    Args:
        host: a name, an IPv4 address or an IPv6 address without brackets; empty for all addresses.
        port: 0 to 65535.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, value: object) -> HostPort:
        """
        Parse ``host:port``, with IPv6 in brackets; the host may be empty.

        Raises:
            ValueError: the text says what was expected.
        """
        if isinstance(value, HostPort):
            return value
        if isinstance(value, str) and (match := _HOST_PORT.match(value)):
            port, six, host = int(match["port"]), match["six"], match["host"]
            if port <= 65535 and (_is_six(six) if six is not None else _is_host(host)):
                return cls(six if six is not None else host, port)
        raise ValueError("an address host:port with a port up to 65535, IPv6 in brackets")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_HOST_PORT: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9._-]{0,253})):(?P<port>0|[1-9][0-9]{0,4})\Z"
)
_LABEL: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\Z")
_NUMBER: Final = re.compile(r"(?:[0-9]+|0[xX][0-9A-Fa-f]*)\Z")


def _is_six(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_host(text: str) -> bool:
    labels = text.removesuffix(".").split(".")
    if _NUMBER.match(labels[-1]):
        # Resolvers read 127.1, 0177.0.0.1 and 2130706433 differently; only the canonical form is accepted.
        try:
            return str(ipaddress.IPv4Address(text)) == text
        except ValueError:
            return False
    return text == "" or all(_LABEL.match(label) for label in labels)


_ItemT = TypeVar("_ItemT")

#: For schemas; the functions above decide what is accepted.
DURATION_PATTERN: Final = r"^[0-9]{1,9}(\.[0-9]{1,6})?(ms|s|m|h|d)$"
ADDRESS_PATTERN: Final = r"^(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{0,253}):(0|[1-9][0-9]{0,4})$"

#: A list in the file and a tuple in the model.
Items = Annotated[tuple[_ItemT, ...], Strict(False)]
Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    text_format("duration", DURATION_PATTERN, format_duration),
]
Size = Annotated[int, BeforeValidator(parse_size), text_format("size", "^[0-9]{1,19}(B|KiB|MiB|GiB)$", format_size)]


def _host_port(value: object) -> dict[str, object] | HostPort:
    return HostPort.parse(value)


Address = Annotated[HostPort, BeforeValidator(_host_port), text_format("address", ADDRESS_PATTERN)]

_ModelT = TypeVar("_ModelT", bound=BaseModel)


#: In front of the name of an environment variable, in place of the path of a configuration.
ENVIRONMENT: Final = "env:"


def load(path: str | Path, model: type[_ModelT]) -> _ModelT:
    """
    Read YAML of at most 1 MiB into a model: a file, or for ``env:NAME`` the environment variable ``NAME``.

    Raises:
        ConfigUnreadable: the file or variable is absent, not readable, too large, or not YAML.
        ConfigInvalid: with every defect found.
    """
    given = str(path)
    text = _read_variable(given) if given.startswith(ENVIRONMENT) else read_text(Path(path))
    return parse(text, model, given)


def _read_variable(path: str) -> str:
    data = os.environb.get(os.fsencode(path.removeprefix(ENVIRONMENT)))
    if data is None:
        raise ConfigVariableMissing(path=path)
    return _decoded(data, path)


def parse(text: str, model: type[_ModelT], path: str = "configuration") -> _ModelT:
    """
    Parse YAML into a model; an empty text has no keys. ``path`` is the name of the file in errors.

    Raises:
        ConfigUnreadable: the text is not YAML that :mod:`svc.strictyaml` accepts.
        ConfigInvalid: with every defect found.
    """
    try:
        document = strictyaml.loads(text)
    except strictyaml.YamlRefused as error:
        raise ConfigUnreadable(path=path, what=error.defect) from error
    return validate({} if document is None else document, model, path)


def parse_all(text: str, models: Mapping[str, type[_ModelT]], path: str) -> list[_ModelT]:
    """
    Parse a YAML stream of documents, separated by ``---``, each into the model of its ``kind``; leave out empty ones.

    Raises:
        ConfigUnreadable: the text is not YAML that :mod:`svc.strictyaml` accepts.
        ConfigInvalid: with every defect of the first document that has any.
    """
    try:
        documents = [each for each in strictyaml.loads_all(text) if each is not None]
    except strictyaml.YamlRefused as error:
        raise ConfigUnreadable(path=path, what=error.defect) from error
    return validate_all(documents, models, path)


def validate_all(documents: Sequence[object], models: Mapping[str, type[_ModelT]], path: str) -> list[_ModelT]:
    """
    Validate documents, each by the model of its ``kind``; ``path`` names where they come from.

    Raises:
        ConfigInvalid, ConfigUnreadable: as :func:`parse_all`.
    """
    named = [(each, path if len(documents) == 1 else f"{path}, document {n}") for n, each in enumerate(documents, 1)]
    return [validate(each, _model_of(each, models, name), name) for each, name in named]


def _model_of(document: object, models: Mapping[str, type[_ModelT]], path: str) -> type[_ModelT]:
    kind = document.get("kind") if isinstance(document, dict) else ""
    model = models.get(kind) if isinstance(kind, str) else None
    if model is None and isinstance(document, dict):
        value = _shown(kind) if "kind" in document else None
        raise ConfigInvalid(path, (ConfigProblem("kind", value, f"one of {', '.join(models)}"),))
    return model or next(iter(models.values()))


def validate(document: object, model: type[_ModelT], path: str) -> _ModelT:
    """Validate one document; for arguments and errors see :func:`validate_all`."""
    if not isinstance(document, dict):
        raise ConfigUnreadable(path=path, what="the file is not a mapping of keys to values")
    try:
        return model.model_validate(document)
    except ValidationError as error:
        problems = tuple(_problem(each, model, document) for each in error.errors(include_url=False))
        raise ConfigInvalid(path, problems) from error


def read_text(path: Path) -> str:
    """Read a file of at most 1 MiB as UTF-8; raises ConfigUnreadable."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        raise ConfigUnreadable(path=path, what=(error.strerror or str(error)).lower()) from error
    except ValueError as error:
        raise ConfigUnreadable(path=path, what="no file can have this name") from error
    return _decoded(data, path)


def _decoded(data: bytes, path: str | Path) -> str:
    if len(data) > MAX_FILE:
        raise ConfigUnreadable(path=path, what=f"it is larger than {MAX_FILE} octets")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigUnreadable(path=path, what=f"invalid UTF-8 at octet {error.start}") from error


_EXPECTED: Final = {
    "missing": "a value",
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _problem(error: Mapping[str, Any], model: type[BaseModel], document: object) -> ConfigProblem:
    location: tuple[int | str, ...] = tuple(error["loc"])
    kind = str(error["type"])
    value = None if kind == "missing" else _shown(error["input"])
    if kind == "value_error":
        expected = str(error["ctx"]["error"])
    elif kind == "extra_forbidden":
        similar = difflib.get_close_matches(str(location[-1]), _keys_at(model, location[:-1]), 1, 0.7)
        expected = f"no such key, perhaps {similar[0]}" if similar else "no such key"
    elif kind in _EXPECTED:
        expected = _EXPECTED[kind]
    else:
        expected = str(error["msg"]).removeprefix("Input should be ")
    return ConfigProblem(key=_key(location, document, absent=kind == "missing"), value=value, expected=expected)


def _keys_at(model: type[BaseModel], location: Sequence[int | str]) -> set[str]:
    """Return the keys of the mappings at a place of a document; branches of unions are parts of the place."""
    models = {model}
    for part in location:
        found: set[type[BaseModel]] = set()
        for each in models:
            for name, field in each.model_fields.items():
                if part == (field.alias or name):
                    found |= _models_in(field.annotation)
        # A number in a list, and the branch of a union, are of the same field.
        models = found or models
    return {field.alias or name for each in models for name, field in each.model_fields.items()}


def _models_in(annotation: object) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for each in get_args(annotation) for model in _models_in(each)}


def _key(location: tuple[int | str, ...], document: object, *, absent: bool) -> str:
    """Write the path of a key as in the file, without the union branches that pydantic adds."""
    shown, here = "", document
    for position, part in enumerate(location):
        last = position == len(location) - 1
        if isinstance(part, int) and isinstance(here, list):
            shown += f"[{part}]"
            here = here[part] if part < len(here) else None
        elif isinstance(here, dict) and (part in here or (absent and last)):
            shown += f".{part}" if shown else str(part)
            here = here.get(part)
    return shown or "configuration"


#: Texts that may contain a password: a URL with an account or a query, and ``name=value`` with such a name.
_SECRET_IN_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://).*(?:[@?]|(?i:passw|secret))", re.DOTALL)
_SECRET_BY_NAME: Final = re.compile(r".*(?:passw|secret|_key)\w*\s*=", re.DOTALL | re.IGNORECASE)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and (secret := _SECRET_IN_URL.match(value)):
        # A URL may contain a password, even below an unknown key, and this text is shown on terminals and in logs.
        return repr(f"{secret[1]}…")
    if isinstance(value, str) and _SECRET_BY_NAME.match(value):
        return repr("…")
    return repr(value) if isinstance(value, str) else str(value)
