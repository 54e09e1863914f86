"""A real Redis server of ours: on a loopback port that stays ours while it is down, keeping nothing on disk."""

from __future__ import annotations

import importlib.util
import shutil
import time
from pathlib import Path

from contextlab.lab.process import KeptProcess
from contextlab.lab.tier.delay import reserved_port
from contextlab.model import UnableError

PROGRAM = "redis-server"
PACKAGES = ("cachetools", "pybreaker", "rbloom", "redis")
READY_S = 10.0
POLL_S = 0.01
ANSWER_S = 5.0


def require() -> str:
    """The path of redis-server. Raises UnableError, in words, where it or a package of the extra is missing."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise UnableError(
            f"the cache tier needs a real Redis, and there is no {PROGRAM} on the PATH",
            "install it: apt install redis-server (Debian, Ubuntu)",
        )
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UnableError(
            f"the cache tier needs packages that are not installed: {', '.join(missing)}",
            "install the extra: pip install 'contextlab[tier]'",
        )
    return program


class RedisServer:
    """Redis from construction to `close`; it dies with the tool. `folder` is where it runs and logs."""

    def __init__(self, folder: Path) -> None:
        self._program = require()
        self._folder = folder
        self._holder = reserved_port()  # Redis listens with SO_REUSEADDR, so it may; others get another port
        self.port = int(self._holder.getsockname()[1])
        self._process: KeptProcess | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int | None:
        """Its process id; None while it is down."""
        return self._process.pid if self._process is not None else None

    def start(self) -> float:
        """Start it, empty; how many seconds until it answered. Raises UnableError where it does not come up."""
        self.stop()
        began_s = time.monotonic()
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "save": "",
            "appendonly": "no",
            "dir": ".",
            "databases": "1",
            "daemonize": "no",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = KeptProcess(
            [self._program, *words], log=self._folder / "redis.log", cwd=self._folder, grace_s=1.0
        )
        while time.monotonic() - began_s < READY_S and self._process.poll() is None:
            try:
                self.command("PING")
            except UnableError:
                time.sleep(POLL_S)
            else:
                return time.monotonic() - began_s
        end = self._process.poll()
        how = "does not answer" if end is None else f"ended ({end.signal or f'exit code {end.exit_code}'})"
        raise UnableError(f"{PROGRAM} {how} at 127.0.0.1:{self.port}", f"see {self._process.log}")

    def stop(self) -> None:
        """End it at once; what it held is gone. Nothing happens where it is down."""
        if self._process is not None:
            self._process.kill()
            self._process.close()
            self._process = None

    def command(self, *words: str) -> object:
        """One command, past relay and tier. Raises UnableError where it does not answer, or refuses it."""
        from redis import Redis, RedisError
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        client = Redis(
            host="127.0.0.1",
            port=self.port,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
            decode_responses=True,
        )
        try:
            answer: object = client.execute_command(*words)  # type: ignore[no-untyped-call]
            return answer
        except RedisError as error:
            raise UnableError(
                f"Redis, asked {' '.join(words)!r}: {error}", f"see {self._folder / 'redis.log'}"
            ) from error
        finally:
            client.close()

    def close(self) -> None:
        """End it and give its port back. May be called again."""
        self.stop()
        self._holder.close()
