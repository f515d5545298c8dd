"""
A cluster of one node: a real Kubernetes with containerd and CoreDNS, below one process in namespaces of its own.

::

    cluster = Cluster.up("e2e", images=[folder / "svc.tar"])
    cluster.kubectl("apply", "-f", "-", data=manifests)
    ...              # cluster.kubeconfig works on the host, and the host reaches pods and Services
    cluster.down()

``bin/cluster`` is the same for people. Its processes and mounts end with that one process, the interfaces with its
network namespace. Nothing of the host's network, of its ``/run`` or of the fixed folders of the kubelet is used.
Nothing leaves the machine: images are imported, or pulled from a registry on the host (:meth:`Cluster.allow_registry`).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clusters.kubernetes import TOP, CertificateAuthority, ToolMissing, apply_crds, folder_of
from images.archive import Content, Image, write_archive, write_layer

NODE: Final = "node0"
_PLACE: Final = Path("/var/tmp")  # noqa: S108 - folders of its own, which root alone makes
_PREFIX: Final = "svc-cluster-"
#: Serializes the choice of addresses, and the folders that all clusters mount over.
_LOCK: Final = _PLACE / ".svc-cluster.lock"
#: Which of :data:`_MOUNTED` were made here; the last cluster removes them.
_MADE: Final = _PLACE / ".svc-cluster.made"
_PAUSE: Final = "svc.internal/pause:1"
_TOOLS: Final = ("kubernetes", "containerd", "coredns")
_CNI: Final = Path("/usr/lib/cni")
#: Programs of Debian, by package.
_PACKAGES: Final = {
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
}
#: Folders with a fixed path: the cluster mounts its own there.
_MOUNTED: Final = ("/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers")
#: Settings of the kernel that the kubelet writes: it gets files of the same content instead.
_TUNED: Final = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)
#: PID 1 of the cluster; a shell, since that reaps the processes that lose their parent. Mounts are shared from here on,
#: as the kubelet and CSI drivers expect it. It ends with the folder, if nobody has noted which process it is.
#: Images are unpacked in memory: thousands of files are slow on a file system where as many were just deleted.
_INIT: Final = """
set -e
for path in {mounted}; do mount --bind "{folder}/own$path" "$path"; done
for name in {tuned}; do mount --bind "{folder}/own/proc/$name" "/proc/sys/$name"; done
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs "{folder}/containerd/root"
mkdir -p /run/lock /run/netns
mount --make-rshared /
echo 1 >/proc/sys/net/ipv4/ip_forward
touch "{folder}/entered"
trap : TERM INT
while [ -e "{folder}/entered" ]; do sleep 5 & wait; done
"""
_CONTAINERD: Final = """
version = 3
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins.'io.containerd.cri.v1.runtime']
  # A container in which this machine may run cannot lower the value.
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = "{folder}/registries"
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{cni}"]
  conf_dir = "{folder}/cni"
"""
_KUBELET: Final = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: {folder}/pki/ca.crt}}
authorization: {{mode: Webhook}}
tlsCertFile: {folder}/pki/kubelet.crt
tlsPrivateKeyFile: {folder}/pki/kubelet.key
cgroupDriver: cgroupfs
cgroupsPerQOS: false
cgroupRoot: /{cgroup}
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
containerRuntimeEndpoint: unix://{folder}/containerd.sock
clusterDNS: [{dns}]
clusterDomain: cluster.local
resolvConf: {folder}/resolv.conf
imageGCHighThresholdPercent: 100
evictionHard: {{memory.available: 100Mi, nodefs.available: "1%", imagefs.available: "1%"}}
"""
#: A default class, and folders of the node for the first claims; nothing provisions further ones.
_VOLUMES: Final = 4
_CLASS: Final = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "node", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}
_COREDNS: Final = """
.:53 {{
  bind {dns}
  kubernetes cluster.local {{
    kubeconfig {folder}/kubeconfig svc
  }}
}}
"""


class ClusterFailed(Exception):
    """
    A cluster could not be started or used.

    Args:
        sentence: what happened.
        hint: what to do about it.
    """

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(f"{sentence}; {hint}" if hint else sentence)
        self.sentence = sentence
        self.hint = hint


class NotPossible(ClusterFailed):
    """This machine, or this user, cannot run a cluster: something is missing."""


@dataclass(frozen=True)
class _Network:
    """
    The addresses of a cluster.

    Args:
        number: which of those that can run side by side.
    """

    number: int

    @property
    def link(self) -> str:
        """The interface on the host."""
        return f"svc-k{self.number}"

    @property
    def host(self) -> str:
        return f"10.{244 + self.number}.255.254"

    @property
    def node(self) -> str:
        return f"10.{244 + self.number}.255.1"

    @property
    def pods(self) -> str:
        return f"10.{244 + self.number}.0.0/24"

    @property
    def services(self) -> str:
        return f"10.{96 + self.number}.0.0/16"

    @property
    def api(self) -> str:
        """The Service ``kubernetes``."""
        return f"10.{96 + self.number}.0.1"

    @property
    def dns(self) -> str:
        return f"10.{96 + self.number}.0.10"

    def connect(self, pid: int) -> None:
        """Join the network namespace of a process and the host; fails where the number is taken."""
        _run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        inside = [
            "link set lo up",
            "link set eth0 up",
            f"address add {self.node}/24 dev eth0",
            f"address add {self.dns}/32 dev eth0",
            f"route add default via {self.host}",
        ]
        outside = [
            f"link set {self.link} up",
            f"address add {self.host}/24 dev {self.link}",
            f"route add {self.pods} via {self.node}",
            f"route add {self.services} via {self.node}",
        ]
        _run("nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-", data="\n".join(inside))
        _run("ip", "-batch", "-", data="\n".join(outside))


#: How many clusters run side by side.
_NETWORKS: Final = tuple(_Network(number) for number in range(10))


class Cluster:
    """
    One cluster, running or not.

    Args:
        name: tells it from others; lower-case letters, digits and hyphens, at most 24.

    Attributes:
        folder: with its files, and its logs in ``log``.
        kubeconfig: of a user who may do everything.
    """

    def __init__(self, name: str = "svc") -> None:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?", name):
            raise ClusterFailed(
                f"a cluster cannot be named {name!r}", "lower-case letters, digits and hyphens, at most 24"
            )
        self.name = name
        self.folder = _PLACE / f"{_PREFIX}{name}"
        self.kubeconfig = self.folder / "kubeconfig"

    @classmethod
    def up(cls, name: str = "svc", *, images: Sequence[Path] = (), api_only: bool = False) -> Cluster:
        """
        Start a cluster for tests; what an earlier run left of that name is removed first.

        Args:
            name: of the cluster.
            images: OCI or Docker archives that its containers run.
            api_only: etcd and the API server alone.

        Returns:
            The cluster, its node ready.

        Raises:
            NotPossible: this machine cannot run one; says what is missing.
            ClusterFailed: it did not get ready.
        """
        cluster = cls(name)
        cluster.check(api_only=api_only)
        cluster.down()
        try:
            cluster.start(images, api_only=api_only)
        except BaseException:
            cluster.down()
            raise
        return cluster

    @staticmethod
    def check(*, api_only: bool = False) -> None:
        """
        Find out whether this machine can run a cluster.

        Args:
            api_only: one without a node.

        Raises:
            NotPossible: it cannot; says what is missing.
        """
        if os.geteuid() != 0:
            raise NotPossible("a cluster needs root", "network, mount and PID namespaces are made; use sudo")
        for program, package in _PACKAGES.items():
            if api_only and package in ("runc", "iptables", "conntrack"):
                continue
            if shutil.which(program, path=_path()) is None:
                raise NotPossible(f"a cluster needs {program}", f"as root: apt-get install {package}")
        if not api_only and not (_CNI / "ptp").exists():
            raise NotPossible("a cluster needs CNI plugins", "as root: apt-get install containernetworking-plugins")
        for tool in _TOOLS[:1] if api_only else _TOOLS:
            try:
                folder_of(tool)
            except ToolMissing as missing:
                raise NotPossible(f"a cluster needs {tool}", f"bin/tools {tool} builds it") from missing

    @property
    def pid(self) -> int:
        """The process in whose namespaces it runs; 0 where it does not."""
        try:
            pid, started = (self.folder / "init").read_text().split()
            return int(pid) if _started(int(pid)) == started else 0
        except (OSError, ValueError):
            return 0

    @property
    def host_address(self) -> str:
        """The address by which pods reach the host."""
        return self._network.host

    @property
    def node_address(self) -> str:
        """The address of the node, where NodePorts answer."""
        return self._network.node

    def start(
        self,
        images: Sequence[Path] = (),
        *,
        api_only: bool = False,
        report: Callable[[str], object] = lambda _step: None,
    ) -> None:
        """
        Start it, with the custom resources of the product, and wait until the node is ready.

        Args:
            images: archives to import before the first pod.
            api_only: etcd and the API server alone: no node, no controller, pods stay pending.
            report: is called with each step as it begins.

        Raises:
            ClusterFailed: it runs already, or it did not get ready.
        """
        if self.pid:
            raise ClusterFailed(f"the cluster {self.name} runs already", f"bin/cluster --name {self.name} down ends it")
        self.down()
        report("making namespaces and certificates")
        with _locked():
            network = self._enter()
        self._write_files(network)
        report("starting etcd and the API server")
        self._launch("etcd", f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync", "--log-level=warn")
        self._launch("kube-apiserver", *self._api_flags(network, api_only))
        if not api_only:
            self._start_containerd(images, report)
        self._wait("kube-apiserver", lambda: self._try_kubectl("get", "--raw", "/readyz"))
        apply_crds(self.kubectl)
        if api_only:
            return
        report("starting controllers, scheduler and the node")
        self._launch_others(network)
        self._wait("kubelet", lambda: self._try_kubectl("get", f"node/{NODE}", "serviceaccount/default"))
        self._make_volumes()
        ready = ("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=1s")
        self._wait("kubelet", lambda: self._try_kubectl(*ready))

    def _make_volumes(self) -> None:
        documents: list[object] = [_CLASS]
        for number in range(_VOLUMES):
            path = self.folder / "volumes" / str(number)
            path.mkdir(parents=True)
            documents.append(_volume(f"node-{number}", path))
        self.kubectl("apply", "-f", "-", data=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))

    def _start_containerd(self, images: Sequence[Path], report: Callable[[str], object]) -> None:
        self._launch("containerd", "-c", f"{self.folder}/containerd.toml")
        self._write_pause()
        self._wait("containerd", lambda: self._ctr("version").returncode == 0)
        report(f"importing {len(images)} images")
        self.load(self.folder / "pause.tar", *images)

    def down(self) -> None:
        """End it and remove everything of it, also what a killed run has left."""
        if pid := self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            # The namespaces are gone when all processes in them are: the kernel ends those first.
            _until(lambda: self.pid == 0 or _is_zombie(pid), 30)
        _remove_cgroups(self._cgroup)
        with _locked():
            if self.folder.is_dir():
                _until(lambda: _removed(self.folder), 10)
            if not any(Cluster(path.name.removeprefix(_PREFIX)).pid for path in _PLACE.glob(f"{_PREFIX}*")):
                for path in reversed(_MADE.read_text().split() if _MADE.exists() else []):
                    with contextlib.suppress(OSError):
                        Path(path).rmdir()
                _MADE.unlink(missing_ok=True)

    def load(self, *archives: Path) -> None:
        """
        Import images.

        Args:
            archives: OCI or Docker archives, as ``bin/image`` writes them.

        Raises:
            ClusterFailed: one could not be read or imported.
        """
        self._check_running()
        for each in archives:
            try:
                with each.open("rb") as file:
                    ran = self._ctr("images", "import", "-", stdin=file.fileno())
            except OSError as error:
                raise ClusterFailed(f"{each} cannot be read: {error.strerror}", "bin/image makes images") from error
            if ran.returncode != 0:
                raise ClusterFailed(f"{each} could not be imported: {_last_line(ran.stderr)}")

    def kubectl(self, *arguments: str, data: str = "", seconds: float = 180.0) -> str:
        """
        Run ``kubectl``.

        Args:
            arguments: the command and its options.
            data: its standard input, for ``-f -``.
            seconds: the longest run.

        Returns:
            What it printed.

        Raises:
            ClusterFailed: it failed; carries what it wrote.
        """
        ran = subprocess.run(
            self.kubectl_command(*arguments), input=data, capture_output=True, text=True, check=False, timeout=seconds
        )
        if ran.returncode != 0:
            raise ClusterFailed(f"kubectl {' '.join(arguments)}: {ran.stderr.strip()}{ran.stdout[-2000:]}")
        return ran.stdout

    def kubectl_command(self, *arguments: str) -> list[str]:
        """Give the argument list of ``kubectl`` for this cluster."""
        return [str(folder_of("kubernetes") / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]

    def node_exec(self, *command: str, seconds: float = 180.0) -> str:
        """
        Run a program in the namespaces of the node, with its files and its network.

        Args:
            command: the program and its arguments.
            seconds: the longest run.

        Returns:
            What it printed.

        Raises:
            ClusterFailed: it failed.
        """
        given = [*self._inside(), *command]
        ran = subprocess.run(given, capture_output=True, text=True, check=False, timeout=seconds, env=_environment())
        if ran.returncode != 0:
            raise ClusterFailed(f"{' '.join(command)}: status {ran.returncode}: {ran.stderr.strip()}")
        return ran.stdout

    def allow_registry(self, address: str, authority: Path | None = None) -> None:
        """
        Let the node pull from a registry.

        Args:
            address: such as that of the host, ``HOST:PORT``, with :attr:`host_address`.
            authority: the certificate of the authority that is trusted for it; None for a registry without TLS.
        """
        folder = self.folder / "registries" / address
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f'server = "{"http" if authority is None else "https"}://{address}"']
        if authority is not None:
            lines.append(f"ca = {json.dumps(str(authority))}")
        (folder / "hosts.toml").write_text("\n".join([*lines, ""]))

    def log(self, name: str) -> str:
        """Read what a program of the cluster wrote, such as ``kubelet``."""
        path = self.folder / "log" / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.down()

    @property
    def _network(self) -> _Network:
        return _Network(int((self.folder / "network").read_text()))

    def _enter(self) -> _Network:
        """Make the namespaces and their link to the host."""
        self.folder.mkdir(mode=0o700)
        for name in ("log", "cni", "containerd/root", "registries"):
            (self.folder / name).mkdir(parents=True)
        missing = [path for path in _MOUNTED if not Path(path).is_dir()]
        for path in missing:
            Path(path).mkdir(parents=True)
        with _MADE.open("a") as made:
            made.writelines(f"{path}\n" for path in missing)
        for path in _MOUNTED:
            (self.folder / f"own{path}").mkdir(parents=True)
        tuned = [name for name in _TUNED if Path("/proc/sys", name).exists()]
        for name in tuned:
            copy = self.folder / "own" / "proc" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(Path("/proc/sys", name).read_text())
        script = _INIT.format(folder=self.folder, mounted=" ".join(_MOUNTED), tuned=" ".join(tuned))
        namespaces = ("--net", "--mount", "--pid", "--ipc", "--propagation=private", "--mount-proc")
        with (self.folder / "log" / "init.log").open("wb") as log:
            outer = _spawn(["unshare", *namespaces, "--fork", "--kill-child=KILL", "bash", "-c", script], log.fileno())
        self._wait("init", (self.folder / "entered").exists)
        [pid] = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        (self.folder / "init").write_text(f"{pid} {_started(int(pid))}\n")
        network = self._connect(int(pid))
        (self.folder / "network").write_text(f"{network.number}\n")
        return network

    def _connect(self, pid: int) -> _Network:
        routes = _run("ip", "-4", "route")
        for network in _NETWORKS:
            used = (network.link, network.pods.removesuffix(".0.0/24"), network.services.removesuffix(".0.0/16"))
            if not any(f"{each}." in routes or f"{each} " in routes for each in used):
                network.connect(pid)
                return network
        raise ClusterFailed(
            f"{len(_NETWORKS)} clusters run already, or their addresses are in use", "ip route lists them"
        )

    def _write_files(self, network: _Network) -> None:
        authority = CertificateAuthority(self.folder / "pki")
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
        addresses = ("127.0.0.1", network.api, network.node)
        authority.issue("server", "kube-apiserver", sans=(*names, "localhost", *addresses))
        authority.issue("kubelet", NODE, sans=(NODE, "127.0.0.1", network.node))
        authority.issue("admin", "admin", groups=("system:masters",))
        authority.kubeconfig(self.kubeconfig, f"https://{network.node}:6443", "admin")
        values = {"folder": self.folder, "pause": _PAUSE, "cni": _CNI, "dns": network.dns, "cgroup": self._cgroup}
        for name, template in (("containerd.toml", _CONTAINERD), ("kubelet.yaml", _KUBELET), ("Corefile", _COREDNS)):
            (self.folder / name).write_text(template.format_map(values))
        (self.folder / "resolv.conf").write_text(f"nameserver {network.dns}\n")
        ranges = {"ranges": [[{"subnet": network.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
        # Routed, not bridged: so packets between pods pass the rules of kube-proxy also without br_netfilter.
        pods = {"type": "ptp", "ipam": {"type": "host-local", "dataDir": str(self.folder / "cni" / "state"), **ranges}}
        plugins = [pods, {"type": "portmap", "capabilities": {"portMappings": True}}]
        network_list = {"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}
        (self.folder / "cni" / "10-pods.conflist").write_text(json.dumps(network_list))

    def _write_pause(self) -> None:
        """The image of pod sandboxes, made from its program."""
        program = Content((folder_of("containerd") / "pause").read_bytes(), mode=0o755)
        layer = write_layer(self.folder / "pause.layer", [("pause", program)])
        write_archive(
            self.folder / "pause.tar", Image(_PAUSE, [layer], {"Entrypoint": ["/pause"], "User": "65535:65535"})
        )

    def _api_flags(self, network: _Network, api_only: bool) -> list[str]:
        pki = self.folder / "pki"
        return [
            # Its controller, which makes the default account of each namespace, does not run.
            *(("--disable-admission-plugins=ServiceAccount",) if api_only else ()),
            *("--etcd-servers=http://127.0.0.1:2379", f"--advertise-address={network.node}", "--secure-port=6443"),
            *(f"--tls-cert-file={pki / 'server.crt'}", f"--tls-private-key-file={pki / 'server.key'}"),
            *(f"--client-ca-file={pki / 'ca.crt'}", "--authorization-mode=Node,RBAC", "--allow-privileged=true"),
            f"--service-account-key-file={pki / 'accounts.key'}",
            f"--service-account-signing-key-file={pki / 'accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-cluster-ip-range={network.services}",
            f"--kubelet-client-certificate={pki / 'admin.crt'}",
            f"--kubelet-client-key={pki / 'admin.key'}",
            f"--kubelet-certificate-authority={pki / 'ca.crt'}",
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _launch_others(self, network: _Network) -> None:
        _make_cgroups(self._cgroup)
        pki = self.folder / "pki"
        same = [
            f"--{each}={self.kubeconfig}"
            for each in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        ]
        same += ["--leader-elect=false"]
        self._launch(
            "kube-controller-manager",
            *same,
            # Its default of 20 requests each second delays the node's first seconds.
            *("--kube-api-qps=500", "--kube-api-burst=1000"),
            *(f"--service-account-private-key-file={pki / 'accounts.key'}", f"--root-ca-file={pki / 'ca.crt'}"),
            *(f"--cluster-signing-cert-file={pki / 'ca.crt'}", f"--cluster-signing-key-file={pki / 'ca.key'}"),
            "--use-service-account-credentials=true",
        )
        self._launch("kube-scheduler", *same)
        self._launch(
            "kube-proxy",
            *(f"--kubeconfig={self.kubeconfig}", "--proxy-mode=iptables", f"--hostname-override={NODE}"),
            *(f"--cluster-cidr={network.pods}", "--conntrack-max-per-core=0", "--iptables-min-sync-period=0s"),
        )
        self._launch(
            "kubelet",
            *(f"--config={self.folder}/kubelet.yaml", f"--kubeconfig={self.kubeconfig}"),
            *(f"--hostname-override={NODE}", f"--node-ip={network.node}"),
        )
        self._launch("coredns", "-conf", f"{self.folder}/Corefile")

    def _launch(self, name: str, *arguments: str) -> None:
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            _spawn([*self._inside(), _program(name), *arguments], log.fileno())

    def _inside(self) -> list[str]:
        self._check_running()
        return ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--ipc"]

    def _ctr(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.CompletedProcess[str]:
        command = [_program("ctr"), "--address", str(self.folder / "containerd.sock"), "--namespace", "k8s.io"]
        return subprocess.run(
            [*self._inside(), *command, *arguments],
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=_environment(),
        )

    def _try_kubectl(self, *arguments: str) -> bool:
        command = self.kubectl_command("--request-timeout=5s", *arguments)
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _check_running(self) -> None:
        if not self.pid:
            raise ClusterFailed(f"no cluster {self.name} runs", f"bin/cluster --name {self.name} up starts it")

    def _wait(self, name: str, holds: Callable[[], bool]) -> None:
        if not _until(holds, 60):
            last = _last_line(self.log(name)) or "it wrote nothing"
            raise ClusterFailed(f"{name} is not ready: {last[:300]}", f"its log is {self.folder / 'log' / name}.log")

    @property
    def _cgroup(self) -> str:
        """The control group of all containers of this cluster; of the kubelet, since QoS classes have none here."""
        return f"svc-cluster-{self.name}"


def _volume(name: str, path: Path) -> dict[str, object]:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "node",
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


def _program(name: str) -> str:
    tool = {"coredns": "coredns", "containerd": "containerd", "ctr": "containerd"}.get(name, "kubernetes")
    return str(folder_of(tool) / name)


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin"


def _environment() -> dict[str, str]:
    """containerd finds its shim by PATH; a cluster without a node has neither."""
    path = _path()
    with contextlib.suppress(ToolMissing):
        path = f"{folder_of('containerd')}:{path}"
    return {"PATH": path, "HOME": "/root"}


def _spawn(command: list[str], output: int) -> subprocess.Popen[bytes]:
    """Start a program that goes on when this process ends."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        cwd="/",
        env=_environment(),
    )


def _run(*command: str, data: str = "") -> str:
    ran = subprocess.run(command, input=data, capture_output=True, text=True, check=False, env=_environment())
    if ran.returncode != 0:
        raise ClusterFailed(f"{' '.join(command[:4])}: {_last_line(ran.stderr)}")
    return ran.stdout


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _started(pid: int) -> str:
    """When a process began, by which it is told from a later one of the same number."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


def _removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _make_cgroups(name: str) -> None:
    """Without a weight of its own, all containers of a cluster together weigh as much as one process of the host."""
    for file, value, enable in (("cpu/{}/cpu.shares", 16384, ""), ("{}/cpu.weight", 625, "+cpu")):
        path = Path("/sys/fs/cgroup", file.format(name))
        if not (path.parents[1] / "cgroup.procs").exists():
            continue
        if enable:
            (path.parents[1] / "cgroup.subtree_control").write_text(enable)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{value}\n")


def _remove_cgroups(name: str) -> None:
    """Containers whose runtime was killed leave theirs."""
    for root in (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*")):
        # os.walk passes over what goes away meanwhile.
        for folder, _folders, _files in os.walk(root / name, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bin/cluster",
        description="A Kubernetes cluster of one node in namespaces of its own; needs root, and no registry.",
        allow_abbrev=False,
    )
    parser.add_argument("--name", default="svc", help="which cluster (default: svc)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start it, building programs that are missing; prints the kubeconfig to use")
    up.add_argument(
        "images", nargs="*", type=Path, metavar="IMAGE.tar", help="images to import, as bin/image makes them"
    )
    up.add_argument("--api-only", action="store_true", help="etcd and the API server alone: no node, no controller")
    commands.add_parser("down", help="end it and remove everything of it")
    commands.add_parser("status", help="whether it runs, and its node; the exit status is 1 where it does not")
    commands.add_parser("kubeconfig", help="print the path of its kubeconfig")
    load = commands.add_parser("load", help="import images")
    load.add_argument("images", nargs="+", type=Path, metavar="IMAGE.tar", help="as bin/image makes them")
    commands.add_parser("kubectl", help="run kubectl on it, with the arguments that follow", add_help=False)
    commands.add_parser("node", help="run a program on its node, with the arguments that follow", add_help=False)
    return parser


def _perform(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    cluster = Cluster(options.name)
    if options.command == "up":
        return _up(cluster, options)
    if options.command == "down":
        cluster.down()
        return 0
    if options.command == "status" and not cluster.pid:
        print(f"no cluster {cluster.name} runs")
        return 1
    cluster._check_running()
    if options.command == "load":
        cluster.load(*options.images)
    elif options.command == "kubectl":
        command = cluster.kubectl_command(*arguments)
        os.execv(command[0], command)  # noqa: S606 - the kubectl of this checkout
    elif options.command == "node":
        print(cluster.node_exec(*arguments), end="")
    else:
        print(cluster.kubeconfig)
        if options.command == "status":
            print(cluster.kubectl("get", "nodes", "-o", "wide"), end="")
    return 0


def _up(cluster: Cluster, options: argparse.Namespace) -> int:
    wanted = _TOOLS[:1] if options.api_only else _TOOLS
    built = subprocess.run([str(TOP / "bin" / "tools"), *wanted], stdout=subprocess.DEVNULL, check=False)
    if built.returncode != 0:
        return 1
    cluster.check(api_only=options.api_only)
    began = time.monotonic()

    def report(step: str) -> None:
        print(f"svc: {time.monotonic() - began:4.1f} s  {step}", file=sys.stderr, flush=True)

    try:
        cluster.start(options.images, api_only=options.api_only, report=report)
    except KeyboardInterrupt:
        cluster.down()
        return 130
    report(f"the cluster {cluster.name} is ready")
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    return 0


def main(given: Sequence[str]) -> int:
    """Run ``bin/cluster``; gives the exit status."""
    # All that follows belongs to the program, its flags too.
    own = next((index + 1 for index, each in enumerate(given) if each in ("kubectl", "node")), len(given))
    try:
        return _perform(_parser().parse_args(given[:own]), given[own:])
    except ClusterFailed as error:
        print(f"svc: {error.sentence}" + (f"\n     {error.hint}" if error.hint else ""), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
