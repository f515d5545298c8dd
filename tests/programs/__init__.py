"""Tests that start a program of this project, a shell or a child process, but neither a server nor a peer."""
