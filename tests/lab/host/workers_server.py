"""A fake of several processes: the first one listens and forks workers, which answer; what becomes of one that dies?

python workers_server.py NUM_WORKERS replace|ignore|end     ─▶ READY http://127.0.0.1:PORT
"""

import asyncio
import os
import signal
import socket
import sys

from aiohttp import web

from contextlab.targets.servers import own_port
from contextlab.targets.servers.fake_engine import DEPARTURES, Engine
from contextlab.targets.servers.fake_server import Server

TOKEN_DELAY_S = 0.01


async def answer(listening: socket.socket) -> None:
    """Serve on the socket that all workers share, for ever."""
    server = Server(Engine(window=256, departure=DEPARTURES["caps"]), num_slots=8, token_delay_s=TOKEN_DELAY_S)
    runner = web.AppRunner(server.app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    await asyncio.Event().wait()


def fork(listening: socket.socket) -> None:
    """Fork a worker."""
    if not os.fork():
        asyncio.run(answer(listening))


def main() -> None:
    """Start the workers, and wait for those that die."""
    num, then = int(sys.argv[1]), sys.argv[2]
    listening = socket.create_server(("127.0.0.1", own_port(0)))
    for _ in range(num):
        fork(listening)
    os.write(1, f"READY http://127.0.0.1:{listening.getsockname()[1]}\n".encode())
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        if not num:
            signal.pause()
        os.wait()
        if then == "replace":
            fork(listening)
        elif then == "end":
            os._exit(3)
        else:
            num -= 1


if __name__ == "__main__":
    main()
