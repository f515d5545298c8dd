"""
The password file: a line ``name:$scrypt$ln=15,r=8,p=1$salt$hash`` for each user, its hash in the PHC string format.

Owns what a valid file is, how it is read, and how one line of it is changed; when passwords are verified is in
:mod:`svc.broker.logins`.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import hashlib
import hmac
import os
import re
import secrets
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from svc.errors import Reason, SvcError
from svc.folders import sync_folder

#: Octets of a file, users in it, and octets of a name.
MAX_FILE: Final = 16 * 1024 * 1024
MAX_USERS: Final = 100_000
MAX_NAME: Final = 256
#: Octets of memory that the verification of one password may take, and its blocks of memory times ``p``.
MAX_MEMORY: Final = 128 * 1024 * 1024
MAX_BLOCKS: Final = 1 << 20
_SALT: Final = 16
_DIGEST: Final = 32
_SALTS: Final = range(8, 65)
_DIGESTS: Final = range(16, 65)
#: What the owner and a group may do with a file.
_ALLOWED_MODE: Final = 0o640
_HASH: Final = re.compile(
    r"\$scrypt\$ln=([1-9]\d?),r=([1-9]\d{0,2}),p=([1-9]\d{0,2})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)", re.ASCII
)


class PasswordFileError(SvcError):
    """the password file {path} cannot be read: {detail}"""

    reason = "password_file_unreadable"
    hint = "`svc broker passwd --create` makes one"
    reasons: ClassVar[Mapping[str, Reason]] = {
        "password_file_not_written": Reason(
            "the password file {path} cannot be written: {detail}",
            "run the command as the owner of the file, who may also write to its folder",
        ),
        "password_file_mode": Reason(
            "the password file {path} is not protected: {detail}",
            "its owner is root or the user of the broker, and its mode 0600, or 0640 with a group of the broker alone",
        ),
        "password_file_invalid": Reason(
            "line {line} of the password file {path} is not valid: {defect}",
            "correct the line, or remove it and set the password again with `svc broker passwd`",
        ),
        "password_file_too_large": Reason(
            "the password file {path} has more than {limit} {what}", "remove users that do not exist any more"
        ),
        "password_user_invalid": Reason(
            "this cannot be the name of a user: {defect}",
            "a name has up to 256 octets, no colon, asterisk or control character, and no number sign at its beginning",
        ),
        "password_user_unknown": Reason(
            "the password file {path} has no user of this name", "names are compared exactly, also their case"
        ),
    }


class ScryptCost(NamedTuple):
    """The cost of a hash (RFC 7914, section 2): ``ln`` is the binary logarithm of N."""

    ln: int
    r: int
    p: int

    @property
    def blocks(self) -> int:
        """Blocks of 128 octets that the memory has."""
        return self.r << self.ln

    @property
    def defect(self) -> str:
        """Why it is not accepted; empty where it is."""
        if 128 * self.blocks > MAX_MEMORY or self.blocks * self.p > MAX_BLOCKS:
            return f"ln={self.ln},r={self.r},p={self.p} costs more than ln=17,r=8,p=1"
        return ""


#: 32 MiB and about 100 ms of a core.
DEFAULT_COST: Final = ScryptCost(15, 8, 1)


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """The hash of one password."""

    cost: ScryptCost
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> PasswordHash:
        """
        Parse the PHC string format.

        Raises:
            ValueError: with what is wrong; the text is not part of it.
        """
        found = _HASH.fullmatch(text)
        if found is None:
            raise ValueError("expected $scrypt$ln=…,r=…,p=…$salt$hash")
        ln, r, p = (int(each) for each in found.group(1, 2, 3))
        cost = ScryptCost(ln, r, p)
        if cost.defect:
            raise ValueError(cost.defect)
        salt, digest = _decode(found[4]), _decode(found[5])
        if len(salt) not in _SALTS or len(digest) not in _DIGESTS:
            raise ValueError("the salt has 8 to 64 octets, the hash 16 to 64, both in base64 without padding")
        return cls(cost, salt, digest)

    @classmethod
    def of(cls, password: bytes, cost: ScryptCost = DEFAULT_COST) -> PasswordHash:
        """Hash a password with a new salt."""
        salt = secrets.token_bytes(_SALT)
        return cls(cost, salt, _scrypt(password, cost, salt, _DIGEST))

    @classmethod
    def of_nobody(cls, cost: ScryptCost) -> PasswordHash:
        """Make the hash of no password, whose verification costs as much as that of others."""
        return cls(cost, secrets.token_bytes(_SALT), secrets.token_bytes(_DIGEST))

    def verify(self, password: bytes) -> bool:
        """Whether it is the hash of a password; takes tens of milliseconds of a core, whatever the result."""
        return hmac.compare_digest(_scrypt(password, self.cost, self.salt, len(self.digest)), self.digest)

    def __str__(self) -> str:
        ln, r, p = self.cost
        return f"$scrypt$ln={ln},r={r},p={p}${_encode(self.salt)}${_encode(self.digest)}"


Users = Mapping[str, PasswordHash]


def usual_cost(users: Users) -> ScryptCost:
    """The cost that most hashes have."""
    counted = Counter(each.cost for each in users.values()).most_common(1)
    return counted[0][0] if counted else DEFAULT_COST


def name_of_user_defect(name: str) -> str:
    """Why a text cannot be the name of a user; empty where it can."""
    if not name:
        return "it is empty"
    if not name.isprintable():
        return "it has a control character or another one that is not printable"
    if ":" in name or "*" in name or name[0] == "#":
        return "it has a colon or an asterisk, or begins with a number sign"
    if name != name.strip():
        return "it begins or ends with a blank"
    if len(name.encode()) > MAX_NAME:
        return f"it has more than {MAX_NAME} octets"
    return ""


def parse_users(text: str, path: str) -> dict[str, PasswordHash]:
    """
    Parse a file; empty lines and those that begin with ``#`` are skipped.

    Raises:
        PasswordFileError: a line is not valid, a name is there twice, or there are too many.
    """
    users: dict[str, PasswordHash] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line[0] == "#":
            continue
        name, _, encoded = line.partition(":")
        defect = name_of_user_defect(name) or ("the name is there twice" if name in users else "")
        try:
            found = PasswordHash.parse(encoded)
        except ValueError as error:
            defect = defect or str(error)
        if defect:
            raise PasswordFileError("password_file_invalid", path=path, line=number, defect=defect)
        if len(users) >= MAX_USERS:
            raise PasswordFileError("password_file_too_large", path=path, limit=MAX_USERS, what="users")
        users[name] = found
    return users


def read_users(path: str) -> dict[str, PasswordHash]:
    """
    Read a file.

    Raises:
        PasswordFileError: it is absent, not protected or not valid.
    """
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise PasswordFileError(path=path, detail="it is no regular file")
            _check_protected(path, status)
            return parse_users(_read_text(file.read(MAX_FILE + 1), path), path)
    except OSError as error:
        raise PasswordFileError(path=path, detail=error.strerror) from error


def change_user(path: str, name: str, password: PasswordHash | None, *, create: bool = False) -> None:
    """
    Set the password of a user, or remove the user; other lines stay as they are.

    The file is locked meanwhile and replaced as a whole; its owner and group stay, and of its mode what is allowed.

    Args:
        name: of the user.
        password: None removes the user.
        create: whether an absent file is created, with mode 0600.

    Raises:
        PasswordFileError: the file or the name is not valid, or the file cannot be written.
    """
    if defect := name_of_user_defect(name):
        raise PasswordFileError("password_user_invalid", defect=defect)
    # A link stays a link.
    path = os.path.realpath(path)
    try:
        with _locked(path, create) as descriptor:
            status = os.fstat(descriptor)
            text = _read_text(os.pread(descriptor, MAX_FILE + 1, 0), path)
            users = parse_users(text, path)
            if password is None and name not in users:
                raise PasswordFileError("password_user_unknown", path=path)
            if password is not None and name not in users and len(users) >= MAX_USERS:
                raise PasswordFileError("password_file_too_large", path=path, limit=MAX_USERS, what="users")
            _replace(path, _changed(text, name, password), status)
    except OSError as error:
        raise PasswordFileError("password_file_not_written", path=path, detail=error.strerror) from error


def _changed(text: str, name: str, password: PasswordHash | None) -> str:
    lines = text.removesuffix("\n").split("\n") if text else []
    place = next((at for at, line in enumerate(lines) if line.startswith(f"{name}:")), len(lines))
    lines[place : place + 1] = [] if password is None else [f"{name}:{password}"]
    return "".join(f"{line}\n" for line in lines)


@contextlib.contextmanager
def _locked(path: str, create: bool) -> Iterator[int]:
    """Open the file that has this name and lock it; another process may have replaced it while this one waited."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _replace(path: str, text: str, status: os.stat_result) -> None:
    folder = os.path.dirname(path)
    descriptor, made = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}.")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            mine = os.fstat(file.fileno())
            if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
            os.fchmod(file.fileno(), status.st_mode & _ALLOWED_MODE)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise
    sync_folder(folder)


def _check_protected(path: str, status: os.stat_result) -> None:
    """Hashes are worth an attack by whoever can read them, and a line of one's own is a login."""
    if status.st_uid not in (0, os.geteuid()):
        raise PasswordFileError("password_file_mode", path=path, detail="it belongs to another user")
    mode = stat.S_IMODE(status.st_mode)
    if mode & ~_ALLOWED_MODE & ~stat.S_IXUSR:
        raise PasswordFileError("password_file_mode", path=path, detail=f"its mode is {mode:04o}")


def _read_text(octets: bytes, path: str) -> str:
    if len(octets) > MAX_FILE:
        raise PasswordFileError("password_file_too_large", path=path, limit=MAX_FILE, what="octets")
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError as error:
        line = octets.count(b"\n", 0, error.start) + 1
        raise PasswordFileError("password_file_invalid", path=path, line=line, defect="it is no UTF-8") from error


def _scrypt(password: bytes, cost: ScryptCost, salt: bytes, octets: int) -> bytes:
    ln, r, p = cost
    # What OpenSSL allocates: the memory of scrypt, that of the p lanes, and two blocks of its own.
    memory = 128 * r * ((1 << ln) + p + 2)
    return hashlib.scrypt(password, salt=salt, n=1 << ln, r=r, p=p, maxmem=memory, dklen=octets)


def _encode(octets: bytes) -> str:
    return base64.b64encode(octets).decode("ascii").rstrip("=")


def _decode(text: str) -> bytes:
    """Decode base64 without padding; b"" where another text would have the same octets."""
    try:
        octets = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        return b""
    return octets if _encode(octets) == text else b""
