"""Redis as the second tier of the cache, with one time limit and no second tries: the policy decides what follows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from redis import asyncio as redis
from redis import exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from contextlab.buffers.tiers import StoreError, StoreFullError, StoreRefusedError, StoreTimeoutError

T = TypeVar("T")


class RedisStore:
    """A `buffers.tiers.Store` on a loopback port. `timeout_s` bounds each ask, its connection included."""

    def __init__(self, port: int, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._redis = redis.Redis(
            host="127.0.0.1", port=port, retry=Retry(NoBackoff(), 0), socket_connect_timeout=timeout_s
        )

    async def get(self, key: str) -> bytes | None:
        """GET."""
        value = await self._asked(self._redis.get(key))
        return value.encode() if isinstance(value, str) else value

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        """SET with an expiry."""
        await self._asked(self._redis.set(key, value, px=max(1, round(ttl_s * 1000))))

    async def close(self) -> None:
        """Close its connections."""
        await self._redis.aclose()

    async def _asked(self, ask: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await ask
        except (TimeoutError, exceptions.TimeoutError) as error:
            raise StoreTimeoutError(f"no answer within {self._timeout_s:g} s") from error
        except (exceptions.BusyLoadingError, exceptions.ConnectionError, OSError) as error:
            raise StoreRefusedError(str(error)) from error
        except exceptions.OutOfMemoryError as error:
            raise StoreFullError(str(error)) from error
        except exceptions.RedisError as error:
            raise StoreError(str(error)) from error
