"""Processes that can write to no folder but their own, as in a container with a read-only root."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from twisted.trial.unittest import SkipTest

#: $1 is the folder that stays writable, or "none"; the rest is the command. /proc, /sys and /dev hold no files.
_SCRIPT = """
set -eu
folder=$1; shift
[ "$folder" = none ] || mount --bind "$folder" "$folder"
cut -d ' ' -f 5 /proc/self/mountinfo | while read -r each; do
    case $each in
        /proc|/proc/*|/sys|/sys/*|/dev|/dev/*) ;;
        "$folder"|"$folder"/*) ;;
        *) mount -o remount,bind,ro "$each" ;;
    esac
done
unset TMPDIR SQLITE_TMPDIR
for each in / /tmp /var/tmp /usr/tmp; do [ ! -w "$each" ] || { echo "$each can be written to" >&2; exit 1; }; done
cd /
exec "$@"
"""


def read_only(folder: Path | None = None) -> list[str]:
    """
    Begin an argument list that runs a command in the folder ``/``, with nothing writable but ``folder``.

    Raises:
        SkipTest: this user may not.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        raise SkipTest("needs root and unshare: it makes folders read-only")
    return ["unshare", "--mount", "sh", "-c", _SCRIPT, "sh", "none" if folder is None else str(folder.resolve())]
