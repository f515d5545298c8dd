"""
The policies of a cluster: ``SvcClusterPolicy`` and ``SvcPolicy``.

``resource`` is the content of these objects, ``overlap`` how two of them meet, ``compiled`` the documents that the
proxies of a namespace read, ``status`` what the objects say of themselves, ``ports`` what a policy says of an injected
proxy, ``review`` the decision of the webhook on them, ``controller`` what reads and writes.
"""
