"""
The one door to the C binding below pyOpenSSL, which pyOpenSSL keeps private.

Owns nothing but the two objects; each module that uses a name of them says what happens where the name is missing.
"""

from __future__ import annotations

from typing import Any, Final

from OpenSSL import SSL

#: The functions and constants of OpenSSL.
lib: Final[Any] = getattr(SSL, "_lib", None)
#: The foreign function interface that owns their types.
ffi: Final[Any] = getattr(SSL, "_ffi", None)
