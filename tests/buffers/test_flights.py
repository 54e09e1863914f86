"""One computation and who listens: everybody hears all of it, from wherever they came in."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.buffers.flights import Flight


@given(st.lists(st.sampled_from(["part", "listener"]), max_size=20))
def test_everybody_hears_all_of_it_in_order(story: list[str]) -> None:
    async def told() -> None:
        gone: list[None] = []
        flight = Flight(lambda: gone.append(None))

        async def listen() -> list[bytes]:
            return [part async for part in flight.listen()]

        tasks: list[asyncio.Task[list[bytes]]] = []
        parts: list[bytes] = []
        for word in story:
            if word == "part":
                parts.append(str(len(parts)).encode())
                flight.add(parts[-1])
            else:
                tasks.append(asyncio.create_task(listen()))
            await asyncio.sleep(0)
        flight.end()
        assert flight.ended
        assert await asyncio.gather(*tasks) == [parts] * len(tasks)
        assert await listen() == parts
        assert gone == []

    asyncio.run(told())


def test_the_last_who_leaves_before_the_end_is_told() -> None:
    async def told() -> None:
        gone: list[None] = []
        flight = Flight(lambda: gone.append(None))
        flight.add(b"a")
        async with aclosing(flight.listen()) as one, aclosing(flight.listen()) as other:
            assert [await anext(one), await anext(other)] == [b"a", b"a"]
            await other.aclose()
            assert gone == []
        assert gone == [None]

    asyncio.run(told())


def test_an_error_comes_after_what_was_said() -> None:
    async def told() -> None:
        flight = Flight(lambda: None)
        flight.add(b"a")
        flight.end(OSError("gone"))
        listening = flight.listen()
        assert await anext(listening) == b"a"
        with pytest.raises(OSError, match="gone"):
            await anext(listening)

    asyncio.run(told())
