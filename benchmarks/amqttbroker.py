"""amqtt's broker on a port of 127.0.0.1, without persistence, for anybody; runs in an environment of its own."""

from __future__ import annotations

import asyncio
import logging
import sys

from amqtt.broker import Broker


async def serve(port: int) -> None:
    """
    Serve until the process ends.

    Args:
        port: where to listen.
    """
    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
    )
    await broker.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(serve(int(sys.argv[1])))
