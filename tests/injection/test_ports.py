"""The annotation with the ports."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.injection.errors import InjectionRefused
from svc.injection.ports import InjectedPort, parse_ports
from tests.refusals import assert_refused


class PortsTests(SynchronousTestCase):
    """What is read, and what is refused."""

    def test_ports(self) -> None:
        """Spaces around a comma are ignored; two ports of the proxy may lead to one of the application."""
        self.assertEqual(
            (InjectedPort(8443, 8080, "http"), InjectedPort(65535, 1, "mqtt"), InjectedPort(1024, 8080, "tcp")),
            parse_ports(" 8443:8080/http ,65535:1/mqtt,  1024:8080/tcp"),
        )
        self.assertEqual("mqtt-65535", InjectedPort(65535, 1, "mqtt").name)

    def test_defects(self) -> None:
        """Each defect is named with its value."""
        form = "is not LISTEN:APPLICATION/PROTOCOL, such as 8443:8080/http"
        for text, defect in (
            ("", f"'' {form}"),
            ("8443:8080/http,", f"'' {form}"),
            ("8443:8080", f"'8443:8080' {form}"),
            ("8443/http", f"'8443/http' {form}"),
            ("8443:8080/HTTP", f"'8443:8080/HTTP' {form}"),
            ("08443:8080/http", f"'08443:8080/http' {form}"),
            ("8443:0/http", f"'8443:0/http' {form}"),
            ("8443: 8080/http", f"'8443: 8080/http' {form}"),
            ("8443:8080/http\n", f"'8443:8080/http\\n' {form}"),
            ("٨443:8080/http", f"'٨443:8080/http' {form}"),
            ("8443:8080/http;9:9/tcp", f"'8443:8080/http;9:9/tcp' {form}"),
            ("8443:8080/https", "the protocol https is not http, tcp or mqtt"),
            ("1023:8080/http", "the proxy listens on ports from 1024 to 65535, not on 1023"),
            ("65536:8080/http", "the proxy listens on ports from 1024 to 65535, not on 65536"),
            ("8443:65536/http", "65536 is above 65535"),
            ("8443:8080/http,8443:8081/tcp", "the proxy cannot listen on 8443 twice"),
            ("8443:8443/http", "proxy and application cannot both have 8443"),
            ("8443:8080/http,8080:8081/http", "proxy and application cannot both have 8080"),
        ):
            error = self.assertRaises(InjectionRefused, parse_ports, text)
            self.assertEqual(("injection_annotation", defect), (error.reason, error.evidence["defect"]))
            self.assertEqual(text, error.evidence["value"])

    def test_number_of_ports(self) -> None:
        """Sixteen are read, seventeen are refused."""
        texts = [f"{20000 + number}:8080/tcp" for number in range(17)]
        self.assertEqual(16, len(parse_ports(",".join(texts[:16]))))
        error = assert_refused(self, "injection_annotation", parse_ports, ",".join(texts))
        self.assertIn("more than 16 ports", str(error))

    @given(st.one_of(st.text(), st.text("0123456789:/,htp mqc")))
    def test_any_text(self, text: str) -> None:
        """Any text is ports with names that Kubernetes accepts, or a refusal of the annotation."""
        try:
            ports = parse_ports(text)
        except InjectionRefused as error:
            self.assertEqual("injection_annotation", error.reason)
        else:
            for port in ports:
                self.assertRegex(port.name, r"\A[a-z][a-z0-9-]{1,14}\Z")
                self.assertIn(f"{port.listen}:{port.application}/{port.protocol}", text)
