"""Tests of the global flags and their rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import UsageRefused
from svc.cli.globals import GlobalOptions, env_bool, resolve_globals
from svc.naming import DEFAULT_SPIFFE_SOCKET
from tests.cli.doubles import run_svc


class ResolveTests(SynchronousTestCase):
    """The options that global flags result in."""

    def test_defaults(self) -> None:
        """Nothing given shows errors only, as text, from the default socket."""
        self.assertEqual(resolve_globals({}, {}), GlobalOptions(-2, "text", False, DEFAULT_SPIFFE_SOCKET, False))

    def test_development(self) -> None:
        """--debug, --log-devel and SVC_DEBUG are one switch: verbosity 1 and stack traces."""
        wanted = GlobalOptions(1, "text", True, DEFAULT_SPIFFE_SOCKET, False)
        for given_flags, environ in (
            ({"debug": True}, {}),
            ({"log_devel": True}, {}),
            ({"debug": True, "log_devel": True}, {}),
            ({}, {"SVC_DEBUG": "true"}),
        ):
            self.assertEqual(resolve_globals(given_flags, environ), wanted)

    def test_flag_over_environment(self) -> None:
        """An explicit --debug=false wins over SVC_DEBUG."""
        self.assertEqual(resolve_globals({"debug": False}, {"SVC_DEBUG": "true"}).verbosity, -2)

    def test_contradiction(self) -> None:
        """Different values for the two flags are rejected, either way round."""
        for debug in (True, False):
            error = self.assertRaises(UsageRefused, resolve_globals, {"debug": debug, "log_devel": not debug}, {})
            self.assertIn("contradicts", str(error))

    @given(st.integers(-5, 5), st.sampled_from(["text", "json"]), st.booleans())
    def test_explicit_wins(self, verbose: int, log_format: str, traces: bool) -> None:
        """What is given explicitly wins over what development logging sets."""
        flags = {"debug": True, "verbose": verbose, "log_format": log_format, "log_stacktrace": traces}
        found = resolve_globals(flags, {})
        self.assertEqual((found.verbosity, found.log_format, found.stack_traces), (verbose, log_format, traces))

    def test_log_level(self) -> None:
        """--log-level names verbosities; with another --verbose it is rejected."""
        levels = {"error": -2, "warn": -1, "warning": -1, "info": 0, "debug": 1, "trace": 2}
        for word, verbosity in levels.items():
            self.assertEqual(resolve_globals({"log_level": word}, {}).verbosity, verbosity)
            self.assertEqual(resolve_globals({"log_level": word, "verbose": verbosity}, {}).verbosity, verbosity)
        self.assertRaises(UsageRefused, resolve_globals, {"log_level": "info", "verbose": 1}, {})
        self.assertEqual(resolve_globals({"log_level": "info", "debug": True}, {}).verbosity, 0)

    def test_socket(self) -> None:
        """The flag wins over SPIFFE_ENDPOINT_SOCKET, which wins over the default."""
        environ = {"SPIFFE_ENDPOINT_SOCKET": "unix:///env"}
        self.assertEqual(resolve_globals({}, environ).spiffe_socket, "unix:///env")
        found = resolve_globals({"spiffe_socket_path": "unix:///flag"}, environ)
        self.assertEqual((found.spiffe_socket, found.socket_given), ("unix:///flag", True))

    def test_environment_booleans(self) -> None:
        """A boolean variable that is neither true nor false is rejected."""
        self.assertFalse(env_bool({"X": ""}, "X"))
        self.assertTrue(env_bool({"X": "1"}, "X"))
        error = self.assertRaises(UsageRefused, env_bool, {"X": "yes"}, "X")
        self.assertEqual(str(error), 'X is set to "yes"')


class CommandLineTests(SynchronousTestCase):
    """The same on the command line, before and after the command."""

    def test_either_side(self) -> None:
        """Global flags are accepted before and after the command, and contradict each other across it."""
        for words in (("-v", "2", "version"), ("version", "-v", "2"), ("--debug", "version", "--log-devel")):
            self.assertEqual(run_svc(*words).status, 0)
        ran = run_svc("--debug", "version", "--log-devel=false")
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        self.assertIn("--debug=true contradicts --log-devel=false", ran.stderr)

    def test_last_one_wins(self) -> None:
        """The same flag given twice is no contradiction."""
        self.assertEqual(run_svc("--debug", "version", "--debug=false", "--log-devel=false").status, 0)
