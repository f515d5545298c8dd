"""
From the configuration to the running tree: the one place where the parts of the proxy meet.

``proxy`` builds what all listeners share, ``http``, ``tcp`` and ``mqtt`` the listeners of one protocol each, and
``endpoints`` where they listen and connect. Nothing starts here; :class:`svc.proxy.service.ProxyService` does that.
"""

from svc.proxy.assembly.proxy import Assembly

__all__ = ["Assembly"]
