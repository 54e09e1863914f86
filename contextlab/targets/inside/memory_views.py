"""Views of memory that somebody else owns: unchecked ones, as kernels have them, and ones that check.

A `RawView` is an address and a promise. Whether it holds is asked by nobody: `CheckedView` asks for the capacity,
`Pool` asks whether the view's owner still has the buffer. Nothing here is meant to serve; it is what the probes of
memory go through.
"""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from typing import Any

FLOAT_BYTES = ctypes.sizeof(ctypes.c_float)
PROT_NONE = 0


class CapacityError(IndexError):
    """A position at or past the end of a buffer was asked for."""


class StaleViewError(RuntimeError):
    """A view was used after its buffer had been given back."""


class RawView:
    """Room for one 32-bit number a token, at an address. Nothing is checked.

    `owner` is whatever must live as long as the view; leaving it out is how a view outlives its memory.
    """

    def __init__(self, address: int, capacity: int, owner: object = None) -> None:
        self.capacity = capacity
        self._numbers = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
        self._owner = owner

    def read(self, position: int) -> float:
        """The number at a position, wherever that is."""
        return float(self._numbers[position])

    def write(self, position: int, number: float) -> None:
        """Write a number at a position, wherever that is."""
        self._numbers[position] = number


class CheckedView(RawView):
    """The same room, entered only as far as it goes. Raises CapacityError before anything is touched."""

    def read(self, position: int) -> float:
        """The number at a position inside the capacity."""
        self._require(position)
        return super().read(position)

    def write(self, position: int, number: float) -> None:
        """Write a number at a position inside the capacity."""
        self._require(position)
        super().write(position, number)

    def _require(self, position: int) -> None:
        if not 0 <= position < self.capacity:
            raise CapacityError(f"length={position + 1}: larger than capacity={self.capacity}; refused before decoding")


def guarded(view: type[RawView]) -> RawView:
    """A view of one page whose end is followed by a page that nobody may touch. Raises OSError where none can be made.

    [ capacity · 4 bytes = one page ][ guard page, PROT_NONE ]
    """
    area = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = address_of(area)
    if c_library().mprotect(address + mmap.PAGESIZE, mmap.PAGESIZE, PROT_NONE) != 0:
        raise OSError(ctypes.get_errno(), "mprotect refused a guard page")
    return view(address, mmap.PAGESIZE // FLOAT_BYTES, owner=area)


def address_of(area: Any) -> int:
    """Where a writable buffer begins. The buffer does not know that somebody took its address."""
    return ctypes.addressof(ctypes.c_char.from_buffer(area))


def c_library() -> ctypes.CDLL:
    """The C library of this process, with the signatures that are called here."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    library.malloc.argtypes, library.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
    library.free.argtypes, library.free.restype = (ctypes.c_void_p,), None
    return library


# ── a pool that lends one buffer ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Lease:
    """A view of the pool's buffer, and which lending it belongs to."""

    view: memoryview
    generation: int


class Pool:
    """Lends one buffer to one request at a time; the next request gets the same memory.

    `revokes`: giving a lease back releases its view, so that Python itself refuses to use it.
    """

    def __init__(self, size_bytes: int, *, revokes: bool = False) -> None:
        self._buffer = bytearray(size_bytes)
        self._revokes = revokes
        self._generation = 0

    def lend(self, content: bytes) -> Lease:
        """Lend the buffer and fill its beginning."""
        self._generation += 1
        self._buffer[: len(content)] = content
        return Lease(memoryview(self._buffer), self._generation)

    def give_back(self, lease: Lease) -> None:
        """End a lease."""
        if self._revokes:
            lease.view.release()

    def read(self, lease: Lease) -> bytes:
        """What a lease holds. Raises StaleViewError where the buffer has been lent again since."""
        if lease.generation != self._generation:
            raise StaleViewError(
                f"generation={lease.generation}: the buffer was given back and lent again, it is at {self._generation}"
            )
        return bytes(lease.view)
