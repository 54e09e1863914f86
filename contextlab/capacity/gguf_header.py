"""Walking through the header of a GGUF file: a check before each step, and budgets for reading and memory.

No file, however it lies, takes a second or 64 MiB.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from contextlab.model import UnableError

MAGIC = b"GGUF"
MAX_TEXT_KEPT_BYTES = 1 << 20
"""Longer texts are stepped over."""
MAX_STRINGS = 1 << 21
"""Texts in all arrays together; the largest vocabularies have under 10⁶ tokens and merges."""
MAX_KEPT_BYTES = 24 << 20
"""Memory that metadata and tensor names may take, as estimated by `Header.keep`."""
MAX_READ_BYTES = 128 << 20
WINDOW_BYTES = 256 << 10

DOWNLOAD_AGAIN = "Download the file again and compare its size or checksum with the publisher's."
_LOOKALIKES = {
    b"vers": "It looks like a Git LFS pointer: fetch the file itself with `git lfs pull`.",
    b"<!DO": "It looks like a web page: download the file itself.",
    b"<htm": "It looks like a web page: download the file itself.",
    b"PK\x03\x04": "It looks like a zip archive or a PyTorch checkpoint: unpack it, or convert it to GGUF.",
    b"lmgg": "It is in llama.cpp's format of before August 2023: convert the original model again.",
    b"fmgg": "It is in llama.cpp's format of before August 2023: convert the original model again.",
    b"tjgg": "It is in llama.cpp's format of before August 2023: convert the original model again.",
}


@dataclass(frozen=True, slots=True)
class Skipped:
    """A value that was stepped over: an array of `length` elements, or a text of `length` bytes."""

    element_type: str
    length: int


class Header:
    """A position in the file, and the checks that stand before each step."""

    def __init__(self, path: str, descriptor: int, file_bytes: int) -> None:
        self.path = path
        self.at = 0
        self.order = "<"
        self._descriptor = descriptor
        self._file_bytes = file_bytes
        self._window = b""
        self._window_at = 0
        self._read_bytes = 0
        self._kept_bytes = 0
        self._num_strings = 0

    def error(self, text: str) -> UnableError:
        """The error that says where in the file it was found."""
        return UnableError(f"{self.path}: {text} (at byte {self.at})", DOWNLOAD_AGAIN)

    def start(self) -> int:
        """Read magic and version, and with them the byte order."""
        if not self._file_bytes:
            raise UnableError(f"{self.path}: the file is empty", DOWNLOAD_AGAIN)
        magic = self.take(min(4, self._file_bytes), "the magic")
        if magic != MAGIC:
            raise UnableError(
                f"{self.path}: not a GGUF file: the first four bytes are {magic!r}, not {MAGIC!r}",
                _LOOKALIKES.get(magic, "Name a .gguf file, or convert the model to GGUF with llama.cpp."),
            )
        version = self.number("I", "the version")
        if version and not version & 0xFFFF:
            self.order = ">"
            version = int.from_bytes(version.to_bytes(4, "little"), "big")
        if version not in {2, 3}:
            raise UnableError(
                f"{self.path}: GGUF version {version}: versions 2 and 3 can be read",
                "Convert the model again with a current llama.cpp, or update contextlab.",
            )
        return version

    def number(self, letter: str, what: str) -> int:
        """One whole number, by `struct`'s letter."""
        return int(self.unpack(letter, what)[0])

    def unpack(self, layout: str, what: str) -> tuple[int | float, ...]:
        """Numbers in `struct`'s letters, in the file's byte order and without padding."""
        layout = self.order + layout
        return struct.unpack(layout, self.take(struct.calcsize(layout), what))

    def count(self, what: str, smallest_bytes: int) -> int:
        """A count whose items take at least `smallest_bytes` each, which the rest of the file must hold."""
        count = self.number("Q", what)
        if count * smallest_bytes > self._file_bytes - self.at:
            raise self.error(
                f"{what} {count} is more than the file can hold: {self._file_bytes - self.at} bytes are left"
            )
        return count

    def name(self, what: str, max_bytes: int) -> str:
        """A key or a tensor's name: short, valid UTF-8."""
        length = self._text_length(what)
        if length > max_bytes:
            raise self.error(f"{what} has {length} bytes, more than {max_bytes}")
        self.keep(64 + 4 * length)
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is not UTF-8") from error

    def text(self, field: str) -> str | Skipped:
        """A text value; undecodable bytes are replaced, long texts stepped over."""
        length = self._text_length(field)
        if length > MAX_TEXT_KEPT_BYTES:
            self.skip(length, field)
            return Skipped("string", length)
        self.keep(64 + 4 * length)
        return self.take(length, field).decode(errors="replace")

    def skip_texts(self, count: int, field: str) -> None:
        """Step over `count` texts, looking at their lengths only."""
        self._num_strings += count
        if self._num_strings > MAX_STRINGS:
            raise self.error(f"{field} has {count} texts; more than {MAX_STRINGS} in all are not read")
        length_at = struct.Struct(self.order + "Q").unpack_from
        at, start, window = self.at, self._window_at, self._window
        last = start + len(window) - 8
        for _ in range(count):
            if at > last:
                self.at = at
                self._fill(8, field)
                start, window = self._window_at, self._window
                last = start + len(window) - 8
            at += 8 + length_at(window, at - start)[0]
        self.at = at
        self.skip(0, field)

    def skip(self, count: int, what: str) -> None:
        """Step over `count` bytes."""
        self._require(count, what)
        self.at += count

    def take(self, count: int, what: str) -> bytes:
        """The next `count` bytes."""
        begin = self.at - self._window_at
        if begin < 0 or begin + count > len(self._window):
            self._fill(count, what)
            begin = 0
        self.at += count
        return self._window[begin : begin + count]

    def keep(self, num_bytes: int) -> None:
        """Account for memory that is about to be taken."""
        self._kept_bytes += num_bytes
        if self._kept_bytes > MAX_KEPT_BYTES:
            raise self.error(f"metadata and tensor names take more than {MAX_KEPT_BYTES >> 20} MiB")

    def _text_length(self, what: str) -> int:
        length = self.number("Q", f"length of {what}")
        if length > self._file_bytes - self.at:
            raise self.error(f"{what} has {length} bytes, more than the {self._file_bytes - self.at} that are left")
        return length

    def _require(self, count: int, what: str) -> None:
        if self.at + count > self._file_bytes:
            raise self.error(
                f"truncated: {what} ends at byte {self.at + count}, the file has {self._file_bytes}",
            )

    def _fill(self, count: int, what: str) -> None:
        """Move the window to `at`, with at least `count` bytes in it."""
        self._require(count, what)
        wanted = min(max(count, WINDOW_BYTES), self._file_bytes - self.at)
        self._read_bytes += wanted
        if self._read_bytes > MAX_READ_BYTES:
            raise self.error(f"the header is longer than the {MAX_READ_BYTES >> 20} MiB that are read")
        try:
            self._window = os.pread(self._descriptor, wanted, self.at)
        except OSError as error:
            raise UnableError(f"{self.path}: cannot be read: {error.strerror}", DOWNLOAD_AGAIN) from error
        self._window_at = self.at
        if len(self._window) < count:
            raise self.error(f"truncated while it was read: {what} has {len(self._window)} of {count} bytes")
