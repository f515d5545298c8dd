`bin/quickstart --port 0` uses any free port; where the port is taken, also by a program that does not answer, the error names `--port`.
