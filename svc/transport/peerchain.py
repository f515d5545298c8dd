"""
The certificates as the peer sent them, read inside OpenSSL's verification.

OpenSSL passes a verify callback the chain that it built by its own rules and the system clock; our verifier needs all
certificates as sent, in their order. They are in the third field of ``X509_STORE_CTX`` (``store``, ``cert``,
``untrusted``), for which the binding has no accessor. The layout is tested with known pointers before it is used, and
checked again in each call; where it does not match, the chain that OpenSSL built is used.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from svc.transport.binding import ffi, lib

_CERT: Final = 1
_UNTRUSTED: Final = 2


@cache
def sent_chain_is_readable() -> bool:
    """Whether ``X509_STORE_CTX`` has the expected layout, tested by filling one with known pointers."""
    store, certificate, stack = lib.X509_STORE_new(), lib.X509_new(), lib.sk_X509_new_null()
    context = lib.X509_STORE_CTX_new()
    try:
        if ffi.NULL in (store, certificate, stack, context):
            return False
        if lib.X509_STORE_CTX_init(context, store, certificate, stack) != 1:
            return False
        fields = ffi.cast("void **", context)
        expected = (store, certificate, stack)
        return all(fields[index] == ffi.cast("void *", pointer) for index, pointer in enumerate(expected))
    finally:
        lib.X509_STORE_CTX_free(context)
        lib.sk_X509_free(stack)
        lib.X509_free(certificate)
        lib.X509_STORE_free(store)


def sent_chain(store_context: Any) -> tuple[bytes, ...]:
    """
    Read the certificates as sent, DER, leaf first, from the ``X509_STORE_CTX *`` of the callback.

    Raises:
        MemoryError: OpenSSL could not serialize them.
    """
    leaf = lib.X509_STORE_CTX_get0_cert(store_context)
    if sent_chain_is_readable():
        fields = ffi.cast("void **", store_context)
        if fields[_CERT] == ffi.cast("void *", leaf):
            # The peer's list starts with the leaf (RFC 8446, 4.4.2), so it is never empty here.
            sent = _read_stack(ffi.cast("Cryptography_STACK_OF_X509 *", fields[_UNTRUSTED]))
            if sent:
                return sent
    return built_chain(store_context)


def built_chain(store_context: Any) -> tuple[bytes, ...]:
    """Read the chain, as far as OpenSSL built it; used where ``sent_chain`` cannot read what was sent."""
    built = lib.X509_STORE_CTX_get1_chain(store_context)
    if built == ffi.NULL:
        return _read_certificates([lib.X509_STORE_CTX_get0_cert(store_context)])
    try:
        chain = _read_stack(built)
        for index in range(lib.sk_X509_num(built)):
            lib.X509_free(lib.sk_X509_value(built, index))
    finally:
        lib.sk_X509_free(built)
    return chain


def _read_stack(stack: Any) -> tuple[bytes, ...]:
    if stack == ffi.NULL:
        return ()
    return _read_certificates([lib.sk_X509_value(stack, index) for index in range(lib.sk_X509_num(stack))])


def _read_certificates(pointers: list[Any]) -> tuple[bytes, ...]:
    return tuple([_octets(pointer) for pointer in pointers])


def _octets(certificate: Any) -> bytes:
    """The DER of an ``X509 *``."""
    memory = lib.BIO_new(lib.BIO_s_mem())
    if memory == ffi.NULL:
        raise MemoryError
    try:
        if lib.i2d_X509_bio(memory, certificate) != 1:
            raise MemoryError
        data = ffi.new("char **")
        size = lib.BIO_get_mem_data(memory, data)
        return bytes(ffi.buffer(data[0], size))
    finally:
        lib.BIO_free(memory)
