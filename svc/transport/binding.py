"""
The C binding below pyOpenSSL, which pyOpenSSL keeps private.

Each module that uses a name of it decides what happens where the name is missing.
"""

from __future__ import annotations

from typing import Any, Final

from OpenSSL import SSL

#: The functions and constants of OpenSSL.
lib: Final[Any] = getattr(SSL, "_lib", None)
#: The foreign function interface of their types.
ffi: Final[Any] = getattr(SSL, "_ffi", None)
