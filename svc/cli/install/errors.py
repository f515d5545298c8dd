"""What stops ``svc install`` before a registry, a package or a cluster does."""

from __future__ import annotations

from svc.errors import Reason, SvcError


class DownloadRefused(SvcError):
    """the release is not downloaded"""

    reason = "download_refused"
    hint = "name another file with --file"
    reasons = {
        "package_there": Reason("{path} is there, and is {what}", "move it away, or name another file with --file"),
        "download_folder_missing": Reason("there is no folder {path}", "make it, or name another file with --file"),
        "download_folder_closed": Reason(
            "nothing may be written into the folder {path}", "name another file with --file"
        ),
        "download_no_space": Reason(
            "there are {free} free in {path}, and {needed} are needed, for the parts and the package made of them",
            "make room, name a file on another disk, or fewer platforms with --platform",
        ),
    }


class PackageOther(SvcError):
    """the package has the release {found}, and --version names {wanted}"""

    reason = "package_version_other"
    hint = "name the package of that release, or leave out --version"
