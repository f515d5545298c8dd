"""What a server sees of a kubeconfig: as whom, and by which way; of our client and of kubectl."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from clusters.kubernetes import CertificateAuthority, ToolMissing, folder_of
from svc.kube.client import connect
from svc.kube.errors import KubernetesError
from svc.kube.kinds import Kind
from tests.integration.kube_rig import until
from tests.peers.folders import short_folder

NAMESPACES: Final = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
V1: Final = "client.authentication.k8s.io/v1"
#: It gives what it was told as its token.
PLUGIN: Final = """#!/bin/sh
test "${OWN:-}" = "" || KUBERNETES_EXEC_INFO="$OWN $*"
token="$(printf %s "$KUBERNETES_EXEC_INFO" | base64 -w 0)"
version="${VERSION:-client.authentication.k8s.io/v1}"
printf '{"apiVersion": "%s", "kind": "ExecCredential", "status": {"token": "%s"}}' "$version" "$token"
"""
FAILS: Final = '#!/bin/sh\ntest -z "$CODE" || echo "enter the code $CODE" >&2\nexit 3\n'


def told(cluster: Mapping[str, Any] | None = None) -> str:
    """The credentials of the plugin, for what it has to be told."""
    spec = {"interactive": False} if cluster is None else {"interactive": False, "cluster": cluster}
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "spec": spec}, sort_keys=True)


def plugin(**more: Any) -> dict[str, Any]:
    """A user with the plugin."""
    return {"exec": {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never", **more}}


def basic(text: str) -> str:
    """The credentials of HTTP Basic."""
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@dataclass(frozen=True)
class Row:
    """
    A kubeconfig.

    Args:
        seen: the values of Authorization and of the headers of impersonation, and the name in the client's certificate;
            the target and the credentials for a proxy; or ``refused``, where nothing was sent. Names in angle
            brackets stand for what the rig has.
        files: further ones, beside the kubeconfig.
        given: words that name the kubeconfig and the context.
        alone: whether kubectl asks for a name on the terminal, and sends nothing.
    """

    seen: Any
    user: Mapping[str, Any] = field(default_factory=dict)
    cluster: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    server: str = "https://127.0.0.1:<port>"
    context: str = ""
    by_variable: str = ""
    alone: bool = False


PAIR: Final = {"client-certificate": "pki/admin.crt", "client-key": "pki/admin.key"}
OTHER: Final = json.dumps(
    {
        "current-context": "second",
        "users": [{"name": "user", "user": {"token": "of-other"}}, {"name": "second", "user": {"token": "second"}}],
        "contexts": [{"name": "second", "context": {"cluster": "cluster", "user": "second"}}],
    }
)
PROXIED: Final = {"HTTPS_PROXY": "http://127.0.0.1:<proxy>"}
ROWS: Final[Mapping[str, Row]] = {
    "nothing": Row("", alone=True),
    "token": Row("Bearer t", {"token": "t"}),
    "a token that is a number": Row("refused", {"token": 1234}),
    "a token with a line end": Row("refused", {"token": "t\n"}),
    "tokenFile with a line end": Row("Bearer f", {"tokenFile": "token"}, files={"token": "f\r\n"}),
    "tokenFile beside token": Row("Bearer f", {"token": "t", "tokenFile": "token"}, files={"token": "f\n"}),
    "missing tokenFile beside token": Row("Bearer t", {"token": "t", "tokenFile": "token"}),
    "missing tokenFile": Row("refused", {"tokenFile": "token"}),
    "empty tokenFile": Row("refused", {"tokenFile": "token"}, files={"token": "\n"}),
    "token before ~/.netrc": Row("Bearer t", {"token": "t"}, files={".netrc": "default login x password y\n"}),
    "certificate and ~/.netrc": Row("admin", PAIR, files={".netrc": "default login x password y\n"}),
    "HTTP Basic": Row(basic("u:p"), {"username": "u", "password": "p"}),
    "HTTP Basic and token": Row("refused", {"username": "u", "password": "p", "token": "t"}),
    "certificate and token": Row("Bearer t admin", {**PAIR, "token": "t"}),
    "certificate without key": Row("refused", {"client-certificate": "pki/admin.crt"}),
    "certificate and its data": Row("refused", {**PAIR, "client-certificate-data": "AAAA"}),
    "no credentials without TLS": Row(
        "", {"token": "t"}, {"certificate-authority": ""}, server="http://127.0.0.1:<plain>"
    ),
    "as": Row("Bearer t impersonate-user=jane", {"token": "t", "as": "jane"}),
    "as with everything": Row(
        "Bearer t impersonate-extra-acme%2fteam=x,impersonate-extra-acme%2fteam=y,impersonate-group=a,"
        "impersonate-group=b,impersonate-uid=7,impersonate-user=jane",
        {
            "token": "t",
            "as": "jane",
            "as-uid": "7",
            "as-groups": ["a", "b"],
            "as-user-extra": {"acme/team": ["x", "y"]},
        },
    ),
    "as-groups without as": Row("refused", {"token": "t", "as-groups": ["a"]}),
    "exec": Row(f"Bearer {told()}", plugin()),
    "exec in PATH": Row(f"Bearer {told()}", plugin(command="plugin"), environment={"PATH": "<folder>:/usr/bin:/bin"}),
    "exec in a relative PATH": Row("refused", plugin(command="plugin"), environment={"PATH": ".:/usr/bin:/bin"}),
    "exec with arguments and variables": Row(
        "Bearer yes 1 two", plugin(args=["1", "two"], env=[{"name": "OWN", "value": "yes"}])
    ),
    "exec with provideClusterInfo": Row(
        "Bearer "
        + told(
            {"server": "https://127.0.0.1:<port>", "certificate-authority-data": "<ca>", "config": {"a": [1, True]}}
        ),
        plugin(provideClusterInfo=True),
        {"extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"a": [1, True]}}]},
    ),
    "exec that fails": Row("refused", plugin(command="./fails")),
    "exec that is missing": Row("refused", plugin(command="./nowhere")),
    "exec that is not in PATH": Row("refused", plugin(command="svc-no-such-plugin")),
    "exec that is no program": Row("refused", plugin(command="./config")),
    "exec of another version": Row("refused", plugin(env=[{"name": "VERSION", "value": f"{V1}beta1"}])),
    "exec of an unknown version": Row("refused", plugin(apiVersion="client.authentication.k8s.io/v9")),
    "exec v1 without interactiveMode": Row("refused", plugin(interactiveMode="")),
    "exec without a terminal": Row(f"Bearer {told()}", plugin(interactiveMode="IfAvailable")),
    "exec that needs a terminal": Row("refused", plugin(interactiveMode="Always")),
    "token before exec": Row("Bearer t", {**plugin(command="./fails"), "token": "t"}),
    "HTTP Basic before exec": Row(basic("u:p"), {**plugin(command="./fails"), "username": "u", "password": "p"}),
    "unknown auth-provider": Row("refused", {"auth-provider": {"name": "gcp", "config": {}}}),
    "exec and auth-provider": Row("refused", {**plugin(), "auth-provider": {"name": "oidc", "config": {}}}),
    "other CA": Row("refused", {"token": "t"}, {"certificate-authority": "other/ca.crt"}),
    "missing CA": Row("refused", {"token": "t"}, {"certificate-authority": "nowhere"}),
    "CA of the system": Row("refused", {"token": "t"}, {"certificate-authority": ""}),
    "not verified": Row("Bearer t", {"token": "t"}, {"certificate-authority": "", "insecure-skip-tls-verify": True}),
    "CA that is not used": Row("refused", {"token": "t"}, {"insecure-skip-tls-verify": True}),
    "tls-server-name": Row(
        "Bearer t", {"token": "t"}, {"tls-server-name": "api.example"}, server="https://localhost:<port>"
    ),
    "other name": Row("refused", {"token": "t"}, server="https://localhost:<port>"),
    "server without a scheme": Row("refused", {"token": "t"}, server="127.0.0.1:<port>"),
    "no server": Row("refused", {"token": "t"}, server=""),
    "context that is not there": Row("refused", {"token": "t"}, context="nowhere"),
    "named context": Row(
        "Bearer second", {"token": "t"}, files={"other": OTHER}, context="second", by_variable="config:other"
    ),
    "first of several files": Row(
        "Bearer t", {"token": "t"}, files={"other": OTHER}, by_variable="nowhere::config:other"
    ),
    "user of the first file": Row("Bearer second", {"token": "t"}, files={"other": OTHER}, by_variable="other:config"),
    "proxy before a loopback server": Row("Bearer t", {"token": "t"}, environment=PROXIED),
    "proxy": Row("proxy 0.0.0.0:<port>", {"token": "t"}, server="https://0.0.0.0:<port>", environment=PROXIED),
    "proxy with credentials": Row(
        f"proxy 0.0.0.0:<port> {basic('u:p')}",
        {"token": "t"},
        server="https://0.0.0.0:<port>",
        environment={"https_proxy": "u:p@127.0.0.1:<proxy>"},
    ),
    "NO_PROXY with a range": Row(
        "Bearer t",
        {"token": "t"},
        server="https://0.0.0.0:<port>",
        environment={**PROXIED, "NO_PROXY": "10.0.0.0/8, 0.0.0.0/8"},
    ),
    "NO_PROXY with another port": Row(
        "proxy 0.0.0.0:<port>",
        {"token": "t"},
        server="https://0.0.0.0:<port>",
        environment={**PROXIED, "NO_PROXY": "0.0.0.0:1"},
    ),
    "proxy-url before a loopback server": Row(
        "proxy 127.0.0.1:<port>",
        {"token": "t"},
        {"proxy-url": "http://127.0.0.1:<proxy>"},
        environment={"NO_PROXY": "*"},
    ),
    "proxy-url of another kind": Row("refused", {"token": "t"}, {"proxy-url": "ftp://127.0.0.1:<proxy>"}),
}


class _Handler(BaseHTTPRequestHandler):
    """Keeps what it sees."""

    server: _Server

    def do_GET(self) -> None:
        """Answer with an empty object."""
        words = [_readable(self.headers.get("Authorization", ""))]
        words.append(
            ",".join(sorted(f"{name}={value}".lower() for name, value in self.headers.items() if "Impersonate" in name))
        )
        certificate: Any = self.request.getpeercert() if isinstance(self.request, ssl.SSLSocket) else None
        words += [
            value for part in (certificate or {}).get("subject", ()) for name, value in part if name == "commonName"
        ]
        self._end(401 if words[0] == "Bearer ended" else 200, " ".join(filter(None, words)))

    def do_CONNECT(self) -> None:
        """Refuse what a proxy is asked for."""
        self._end(502, " ".join(filter(None, ["proxy", self.path, self.headers.get("Proxy-Authorization", "")])))

    def _end(self, status: int, seen: str) -> None:
        self.server.seen.append(seen)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_words: object) -> None:
        """Nothing is logged."""


class _Server(ThreadingHTTPServer):
    """On a loopback port."""

    daemon_threads = True

    def __init__(self, seen: list[str], context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen = seen
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, *_connection: object) -> None:
        """A client that does not like the certificate ends the handshake."""


def _readable(authorization: str) -> str:
    kind, _blank, token = authorization.partition(" ")
    try:
        text = base64.b64decode(token, validate=True).decode() if kind == "Bearer" and len(token) > 9 else token
    except ValueError:
        text = token
    with contextlib.suppress(ValueError):
        text = json.dumps(json.loads(text), sort_keys=True) if text.startswith("{") else text
    return f"{kind} {text}".strip()


class KubeconfigTests(SynchronousTestCase):
    """An API server that sees headers alone, and a proxy."""

    maxDiff = None

    def setUp(self) -> None:
        """Start both."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.folder = short_folder(stack)
        authority = CertificateAuthority(self.folder / "pki")
        CertificateAuthority(self.folder / "other")
        authority.issue("server", "server", sans=("127.0.0.1", "0.0.0.0", "api.example"))
        authority.issue("admin", "admin")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.folder / "pki" / "ca.crt"))
        context.load_cert_chain(self.folder / "pki" / "server.crt", self.folder / "pki" / "server.key")
        context.verify_mode = ssl.CERT_OPTIONAL
        self.seen: list[str] = []
        places = {"<folder>": str(self.folder)}
        for name, tls in (("<port>", context), ("<plain>", None), ("<proxy>", None)):
            server = _Server(self.seen, tls)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            places[name] = str(server.server_address[1])
        places["<ca>"] = base64.b64encode((self.folder / "pki" / "ca.crt").read_bytes()).decode()
        self.places = places
        for name, text in (("plugin", PLUGIN), ("fails", FAILS)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o700)

    def place(self, value: Any) -> Any:
        """Fill in what the rig has."""
        text = json.dumps(value)
        for name, found in self.places.items():
            text = text.replace(name, found)
        return json.loads(text)

    def write(self, row: Row) -> dict[str, str]:
        """Write the files of a row; returns the environment."""
        cluster = self.place({"server": row.server, "certificate-authority": "pki/ca.crt", **row.cluster})
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": "user", "user": row.user}],
            "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
            "current-context": "context",
        }
        for name in ("token", ".netrc", "other-file"):
            (self.folder / name).unlink(missing_ok=True)
        for name, text in {"config": json.dumps(document), **row.files}.items():
            # The folder other has a CA.
            path = self.folder / ("other-file" if name == "other" else name)
            path.write_text(text)
            path.chmod(0o600)
        paths = row.by_variable.replace("other", "other-file").split(":") if row.by_variable else ["config"]
        environment = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin", **self.place(row.environment)}
        return {**environment, "KUBECONFIG": ":".join(str(self.folder / path) if path else "" for path in paths)}

    def outcome(self) -> str:
        """What was seen since the last time; a repeated attempt is the same."""
        seen = set(self.seen)
        self.seen.clear()
        self.assertLessEqual(len(seen), 1)
        return seen.pop() if seen else "refused"

    def ours(self, row: Row, environment: Mapping[str, str]) -> str:
        """What is seen of our client."""

        async def ask() -> None:
            async with aclosing(await connect(context=row.context, environment=environment)) as client:
                await client.get(NAMESPACES, "default")

        reason = ""
        try:
            asyncio.run(ask())
        except KubernetesError as error:
            reason = error.reason
            self.assertNotIn("u:p", str(error))
        found = self.outcome()
        self.assertEqual(found == "refused" or found.startswith("proxy"), bool(reason), f"{found}: {reason}")
        return found

    def kubectl(self, program: Path, row: Row, environment: Mapping[str, str]) -> str:
        """What is seen of kubectl, in another folder."""
        words = [str(program), *([f"--context={row.context}"] if row.context else []), "get", "--raw", "/version"]
        ran = subprocess.run(
            words, env=environment, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
        )
        found = self.outcome()
        self.assertEqual(found == "refused" or found.startswith("proxy"), ran.returncode != 0, ran.stderr)
        return found

    def give(self, status: Mapping[str, Any]) -> None:
        """Write a plugin that gives this, and counts how often it is asked."""
        credential = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})
        (self.folder / "plugin").write_text(f"#!/bin/sh\necho >> {self.folder}/runs\ncat << END\n{credential}\nEND\n")

    def runs(self) -> int:
        """How often the plugin was asked since the last time."""
        path = self.folder / "runs"
        count = len(path.read_text()) if path.exists() else 0
        path.unlink(missing_ok=True)
        return count

    def test_plugin_runs(self) -> None:
        """A plugin runs once for several requests; again when its credentials have ended, or are not accepted."""
        environment = self.write(Row("", plugin()))

        async def ask() -> None:
            async with aclosing(await connect(environment=environment)) as client:
                self.give({"token": "a"})
                await asyncio.gather(*(client.get(NAMESPACES, "default") for _ in range(3)))
                await client.get(NAMESPACES, "default")
                self.assertEqual(("Bearer a", 1), (self.outcome(), self.runs()))
            async with aclosing(await connect(environment=environment)) as client:
                self.give({"token": "ended", "expirationTimestamp": "2100-01-01T00:00:00Z"})
                with self.assertRaises(KubernetesError) as caught:
                    await client.get(NAMESPACES, "default")
                self.assertEqual("kubernetes_credentials", caught.exception.reason)
                self.seen.clear()
                self.give({"token": "b", "expirationTimestamp": "2020-01-01T00:00:00Z"})
                await client.get(NAMESPACES, "default")
                await client.get(NAMESPACES, "default")
                self.assertEqual(("Bearer b", 3), (self.outcome(), self.runs()))

        asyncio.run(ask())

    def test_plugin_certificates(self) -> None:
        """A certificate of a plugin is used; its successor on new connections; one of the kubeconfig comes first."""

        def certificate(name: str) -> dict[str, str]:
            read = (self.folder / "pki" / f"{name}.crt").read_text(), (self.folder / "pki" / f"{name}.key").read_text()
            return {"clientCertificateData": read[0], "clientKeyData": read[1]}

        async def ask(environment: Mapping[str, str]) -> list[str]:
            found = []
            async with aclosing(await connect(environment=environment)) as client:
                for name in ("admin", "server"):
                    self.give({**certificate(name), "expirationTimestamp": "2020-01-01T00:00:00Z"})
                    await client.get(NAMESPACES, "default")
                    found.append(self.outcome())
            return found

        self.assertEqual(["admin", "server"], asyncio.run(ask(self.write(Row("", plugin())))))
        self.assertEqual(["admin", "admin"], asyncio.run(ask(self.write(Row("", {**plugin(), **PAIR})))))

    def test_plugin_answers(self) -> None:
        """What is no credential is a refusal that names the plugin; nothing is sent."""
        row = Row("", plugin())
        environment = self.write(row)
        bad: list[Mapping[str, Any]] = [
            {},
            {"token": 1},
            {"token": "a\nb"},
            {"token": "t", "expirationTimestamp": "soon"},
            {"clientCertificateData": "x"},
            {"clientCertificateData": "x", "clientKeyData": "y"},
        ]
        for status in bad:
            self.give(status)
            self.assertEqual("refused", self.ours(row, environment), status)

    def test_plugin_is_ended(self) -> None:
        """A plugin ends with the request that waited for it."""
        environment = self.write(Row("", plugin()))
        (self.folder / "plugin").write_text(f"#!/bin/sh\necho $$ > {self.folder}/pid\nexec sleep 600\n")

        async def ask() -> None:
            async with aclosing(await connect(environment=environment)) as client:
                request = asyncio.ensure_future(client.get(NAMESPACES, "default"))
                path = self.folder / "pid"
                await until(lambda: path.exists() and path.read_text(), "the plugin")
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)
                with self.assertRaises(ProcessLookupError):
                    os.kill(int(path.read_text()), 0)

        asyncio.run(ask())

    def test_plugin_speaks(self) -> None:
        """What a plugin writes for its user is shown, and its failure is one error with command and status."""
        self.write(Row("", plugin(command="./fails", env=[{"name": "CODE", "value": "1234"}])))
        words = ["license", "status", "-K", str(self.folder / "config")]
        ran = subprocess.run(
            [sys.executable, "-m", "svc.cli.main", *words],
            env={"HOME": str(self.folder), "PATH": os.defpath},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        failure = (
            "enter the code 1234\n"
            f"svc: nothing was asked of the cluster: the credential plugin {self.folder}/fails of the kubeconfig ended "
            "with status 3 (credential_plugin_failed)\n"
            "     kubectl get --raw /version runs it as well\n"
            f"     the cluster is https://127.0.0.1:{self.places['<port>']} (context context)\n"
        )
        self.assertEqual((1, "", failure), (ran.returncode, ran.stdout, ran.stderr))

    def test_table(self) -> None:
        """Each row, with our client and with kubectl, which agree."""
        try:
            program = folder_of("kubernetes") / "kubectl"
        except ToolMissing:
            program = None
        self.patch(os, "isatty", lambda _descriptor: False)
        wrong = []
        for name, row in ROWS.items():
            environment = self.write(row)
            expected = self.place(row.seen)
            found = {"svc": self.ours(row, environment)}
            if program is not None and not row.alone:
                found["kubectl"] = self.kubectl(program, row, environment)
            wrong += [f"{name}: {who}: {seen}, not {expected}" for who, seen in found.items() if seen != expected]
        self.assertEqual([], wrong)
