"""
A machine of its own for what needs root, users and fixed paths: namespaces over a copy-on-write view of this one.

::

    with Machine() as machine:
        machine.write("/etc/hosts", "10.0.0.2 other\n")
        status, output = machine.run("useradd --system svc-api && id svc-api")

Nothing that it writes reaches the disk: files, users, processes, mounts and network end with it. The checkout is at
``/opt/svc``, as if it had been installed there.
"""

from __future__ import annotations

import base64
import os
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from twisted.trial.unittest import SkipTest

from tests.peers.folders import make_folder, remove_folder
from tests.peers.pages import Command
from tests.peers.waiting import PATIENCE, TOP

_NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child")
_MARK = "\x1e"
#: The paths of a Debian machine; those of whoever runs the tests may lead into their home.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: $1 is where the tmpfs goes; further arguments are folders that every user of the machine must be able to read.
_BOOT = """
set -eu
mount --make-rprivate /
base=$1; root=$base/root; shift
mount -t tmpfs -o mode=755,size=512m machine "$base"
mkdir "$base/upper" "$base/work" "$root"
mount -t overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" machine "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
for folder; do
    mkdir -p "$root$folder"
    mount --bind "$folder" "$root$folder"
    mount -o remount,bind,ro "$root$folder"
    parent=$(dirname "$folder")
    while [ "$parent" != / ]; do chmod a+x "$root$parent"; parent=$(dirname "$parent"); done
done
ip link set lo up
cd "$root"
# Nothing of the real root stays within reach, as it would behind chroot.
mkdir .old
pivot_root . .old
umount -l /.old
rmdir /.old
echo booted
exec chroot . /usr/bin/env -i "PATH=$PATH" HOME=/root LANG=C.UTF-8 bash
"""
#: What the units need of systemd: folders, the rest read-only, users, capabilities, the first check, templates, and
#: that a start is over when the process says so.
_SYSTEMCTL = """
import configparser, os, re, signal, socket, subprocess, sys, time

def start(name):
    found = re.fullmatch(r"([^@]+@?)(.*?)(?:\\.service)?", name)
    unit = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    unit.optionxform = str
    with open(f"/etc/systemd/system/{found[1]}.service") as file:
        unit.read_string(file.read().replace("%i", found[2]).replace("$MAINPID", "0"))
    service = unit["Service"]
    user = service.get("User", "root")
    steps = []
    for kind, parent in (("Runtime", "/run"), ("State", "/var/lib")):
        if folder := service.get(f"{kind}Directory"):
            path = f"{parent}/{folder}"
            os.makedirs(path, exist_ok=True)
            os.chmod(path, int(service.get(f"{kind}DirectoryMode", "0755"), 8))
            subprocess.run(["chown", f"{user}:", path], check=True)
            steps.append(f"mount --bind {path} {path}")
    assert service["ProtectSystem"] == "strict"
    steps += ["mount -o remount,bind,ro /", "mount -o remount,bind,ro /run", 'exec "$@"']
    as_user = ["unshare", "--mount", "sh", "-c", " && ".join(steps), "sh"]
    as_user += ["setpriv", "--no-new-privs", "--reuid", user, "--regid", user, "--init-groups"]
    def capabilities(key):
        return "-all" + "".join("," + each.replace("CAP_", "+").lower() for each in service.get(key, "").split())
    if "CapabilityBoundingSet" in service:
        ambient = capabilities("AmbientCapabilities")
        as_user += [f"--inh-caps={ambient}", f"--ambient-caps={ambient}"]
        as_user += [f"--bounding-set={capabilities('CapabilityBoundingSet')}"]
    folder = service["WorkingDirectory"]
    with open(f"/var/log/{name}.log", "ab") as log:
        subprocess.run([*as_user, *service["ExecStartPre"].split()], cwd=folder, stdout=log, stderr=log, check=True)
        assert service["Type"] == "notify"
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        if os.path.exists(f"/run/{name}.notify"):
            os.unlink(f"/run/{name}.notify")
        manager.bind(f"/run/{name}.notify")
        os.chmod(f"/run/{name}.notify", 0o666)
        manager.settimeout(1)
        process = subprocess.Popen(
            [*as_user, *service["ExecStart"].split()],
            cwd=folder,
            env={**os.environ, "NOTIFY_SOCKET": f"/run/{name}.notify"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    with open(f"/run/{name}.pid", "w") as file:
        file.write(str(process.pid))
    return name, process, manager

def wait_until_started(name, process, manager):
    told = b""
    while told != b"READY=1":
        try:
            told = manager.recv(100)
        except TimeoutError:
            if process.poll() is not None:
                sys.exit(f"systemctl: {name} ended with status {process.returncode}")

def stop(name):
    with open(f"/run/{name}.pid") as file:
        pid = file.read()
    os.kill(int(pid), signal.SIGTERM)
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.02)

names = [each for each in sys.argv[2:] if each != "--now"]
if sys.argv[1] not in ("daemon-reload", "enable", "restart"):
    sys.exit(f"systemctl: not known here: {sys.argv[1:]}")
for name in names if sys.argv[1] == "restart" else []:
    stop(name)
for each in [start(name) for name in names]:
    wait_until_started(*each)
"""
_PROGRAMS = {
    "/opt/svc/.venv/bin/twistd": "-c 'import sys; from twisted.scripts.twistd import run; sys.exit(run())'",
    "/opt/svc/.venv/bin/svc": "-m svc.cli.entry",
    "/opt/svc/.venv/bin/python3": "",
    "/usr/local/bin/python3": "",
    "/usr/local/sbin/systemctl": "/usr/local/lib/systemctl.py",
}


def needed() -> None:
    """Skip the test where there can be no such machine."""
    if os.geteuid() != 0:
        raise SkipTest("needs root: it makes users, mounts and networks of its own")
    for name in ("unshare", "setpriv", "runuser", "ip"):
        if shutil.which(name, path=_PATH) is None:
            raise SkipTest(f"{name} is missing: apt-get install util-linux iproute2")


class Machine:
    """
    One machine, from ``with`` on.

    Raises:
        SkipTest: the kernel does not allow it here.
    """

    def __init__(self) -> None:
        needed()
        self._folder = make_folder("svc-machine-")
        self._shell: subprocess.Popen[bytes] | None = None
        self._read = b""

    def __enter__(self) -> Self:
        packages = [path for path in sys.path if path.endswith("site-packages")]
        folders = [each.resolve() for each in (Path(sys.base_prefix), TOP, *map(Path, packages))]
        inner = [
            str(each)
            for each in folders
            if not each.is_relative_to("/usr") and not any(o in each.parents for o in folders)
        ]
        self._shell = subprocess.Popen(
            ["unshare", *_NAMESPACES, "bash", "-c", _BOOT, "bash", str(self._folder), *dict.fromkeys(inner)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": _PATH},
        )
        output = self._until(b"booted\n", PATIENCE)
        if output is None:
            self.__exit__()
            raise SkipTest(f"no namespaces or no overlay here: {self._read.decode(errors='replace').strip()}")
        self._install(packages)
        return self

    def __exit__(self, *_exception: object) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.kill()
            shell.communicate()
        remove_folder(self._folder)

    @property
    def pid(self) -> int:
        """The first process of the machine."""
        assert self._shell is not None
        return int(Path(f"/proc/{self._shell.pid}/task/{self._shell.pid}/children").read_text())

    def read(self, name: str) -> str | None:
        """Read a file; None where there is none."""
        status, text = self.run(f"cat {name}")
        return None if status else text

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        """Write a file into a folder that is there."""
        # By its own shell: from outside, symbolic links of the machine would lead to files of this one.
        encoded = base64.b64encode(text.encode()).decode()
        status, output = self.run(f"rm -f {name}; base64 -d <<< '{encoded}' > {name} && chmod {mode:o} {name}")
        assert status == 0, output

    def run(self, command: str, seconds: float = PATIENCE) -> tuple[int, str]:
        """Run a command in the shell of root, which keeps its variables; gives status and both streams."""
        assert self._shell is not None and self._shell.stdin is not None
        self._shell.stdin.write(f"{{ {command}\n}} </dev/null 2>&1; printf '{_MARK}%s{_MARK}' $?\n".encode())
        self._shell.stdin.flush()
        output, status = self._until(_MARK.encode(), seconds), self._until(_MARK.encode(), seconds)
        if output is None or status is None:
            raise AssertionError(f"no end of {command!r} within {seconds:g} s: {self._read.decode(errors='replace')}")
        return int(status), output.decode(errors="replace")

    def follow(self, command: Command) -> None:
        """
        Run a command of a page, behind ``$`` as an ordinary user.

        Raises:
            AssertionError: it failed, or its output is not as shown; with the output and the ends of the logs.
        """
        text = f"runuser -u nobody -- {command.text}" if command.prompt == "$" else command.text
        # One command may start three daemons, and is over when all of them serve.
        status, output = self.run(text, 3 * PATIENCE)
        if status != 0 or not re.match(command.pattern, output):
            logs = self.run("tail -n 20 /var/log/svc-*.log /var/log/spire-*.log")[1]
            raise AssertionError(f"{command.text}\nstatus {status}, output:\n{output}\nlogs:\n{logs}")

    def connect(self, other: Machine) -> None:
        """Lay a cable to another machine; the addresses are 10.0.0.1 and 10.0.0.2."""
        command = ["ip", "link", "add", "cable", "netns", str(self.pid), "type", "veth"]
        subprocess.run([*command, "peer", "name", "cable", "netns", str(other.pid)], check=True)
        for number, machine in enumerate((self, other), 1):
            status, output = machine.run(f"ip address add 10.0.0.{number}/24 dev cable && ip link set cable up")
            assert status == 0, output

    def _install(self, packages: list[str]) -> None:
        python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
        path = os.pathsep.join([str(TOP), *packages])
        site = f"/opt/svc/.venv/lib/{python.name}/site-packages"
        status, output = self.run(f"mkdir -p /opt/svc/.venv/bin {site} && ln -s {TOP}/svc {site}/svc")
        assert status == 0, output
        for name, arguments in _PROGRAMS.items():
            run = f'PYTHONPATH={path} PYTHONUNBUFFERED=1 exec {python} {arguments} "$@"'
            self.write(name, f"#!/bin/sh\n{run}\n", 0o755)
        self.write("/usr/local/lib/systemctl.py", _SYSTEMCTL)

    def _until(self, mark: bytes, seconds: float) -> bytes | None:
        assert self._shell is not None and self._shell.stdout is not None
        deadline = time.monotonic() + seconds
        while mark not in self._read:
            left = deadline - time.monotonic()
            if left < 0 or not select.select([self._shell.stdout], [], [], left)[0]:
                return None
            found = os.read(self._shell.stdout.fileno(), 65536)
            if not found:
                return None
            self._read += found
        taken, _mark, self._read = self._read.partition(mark)
        return taken
