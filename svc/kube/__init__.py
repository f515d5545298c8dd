"""
The only access to Kubernetes: a client, a cache with its worker, leader election, status, conditions and Events.

Objects are dictionaries, as the API server sends them. Everything runs in asyncio's loop, which is the reactor's in a
daemon. The package ``kubernetes`` is imported here alone, and no process that carries traffic imports this.
"""
