"""A target that costs nothing: it answers every request with 200, has a second thread and a worker process.

Standard library only, so that it starts in a few milliseconds; CONTEXTLAB_PORT is where it listens (0: anywhere).
"""

import os
import signal
import socket
import sys
import threading
import time


def rest() -> None:
    """Be there, and do next to nothing."""
    while True:
        time.sleep(0.05)


def main() -> None:
    """Listen, say where, and answer one after the other."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", int(os.environ.get("CONTEXTLAB_PORT", "0"))))
    listening.listen(64)
    parent = os.getpid()
    if os.fork() == 0:
        listening.close()
        while os.getppid() == parent:
            time.sleep(0.05)
        os._exit(0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    threading.Thread(target=rest, daemon=True).start()
    sys.stdout.write(f"READY http://127.0.0.1:{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")


if __name__ == "__main__":
    main()
