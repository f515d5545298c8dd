"""
Signed artefacts: the envelope, workload statements, request receipts, and the one verifier for all of them.

Owns what is signed, how, and whether it is to be believed. Knows no socket, no file, no clock and no logger: the time
and randomness are arguments, the result is evidence, and a failure is one class with one reason.
"""
