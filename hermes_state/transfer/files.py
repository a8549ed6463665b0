"""Files that sessions travel in: gzip and zstd by suffix, written whole or not at all, read line by line within bounds."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, cast

from hermes_state.dialects import sqlite_files
from hermes_state.errors import HermesStateError

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_CHUNK = 1024 * 1024
_HELD_BYTES = 16 * 1024 * 1024
_LINE_END = b"\r\n"
_ZSTD_BITE = 1024


class TransferFileError(HermesStateError, ValueError):
    """A file cannot be read or written. ``reason`` says why."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class LineTooLong(bytes):
    """What stands for a line above the bound: its first bytes."""

    __slots__ = ()


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A stream into ``path``, compressed for the suffixes ``.gz`` and ``.zst``; the file appears, whole, when the block ends.

    Only the owner may read it. A database is never replaced (``TransferFileError``): it may be the very store. When the block raises, what stood at ``path`` before is untouched. A link stays one, and
    what is no file (a pipe, ``/dev/stdout``) gets the data as they come.
    """
    try:
        with _destination(path) as raw, _compressing(path, raw) as stream:
            yield stream
    except OSError as error:
        raise TransferFileError(path, error.strerror or "it cannot be written") from error


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The content of ``path`` as a stream; gzip and zstd are recognised by their first bytes, whatever the suffix.

    ``-`` is what stands on stdin, which waits in an unnamed temporary file. A file that is damaged or cut off raises
    ``TransferFileError`` where that shows.
    """
    try:
        with _stdin() if str(path) == "-" else path.open("rb") as stream:
            start = stream.read(4)
            stream.seek(0)
            with _decompressing(path, start, stream) as plain:
                yield plain
    except (OSError, EOFError, zlib.error) as error:
        reason = "it is damaged or cut off" if isinstance(error, _DAMAGED) else error.strerror
        raise TransferFileError(path, reason or "it cannot be read") from error


def bounded_lines(stream: BinaryIO, max_bytes: int) -> Iterator[bytes]:
    """The lines of the stream without their ends; a ``LineTooLong`` stands for one above ``max_bytes``.

    What is not yet known to fit waits in an unnamed temporary file, so that a line that is too long takes hardly any memory.
    """
    while start := stream.readline(_CHUNK):
        is_whole = len(start) < _CHUNK or start.endswith(b"\n")
        line = start if is_whole else _collected(start, stream.readline, b"\n", max_bytes + len(_LINE_END))
        text = None if line is None else line.rstrip(_LINE_END)
        if text is None or len(text) > max_bytes:
            text = LineTooLong(start[:200].rstrip(_LINE_END))
        yield text


def bounded_rest(stream: BinaryIO, max_bytes: int) -> bytes | None:
    """What is left of the stream; ``None`` when it is more than ``max_bytes``, of which little is held then."""
    return _collected(b"", stream.read, None, max_bytes)


def _collected(start: bytes, read: Callable[[int], bytes], end: bytes | None, max_bytes: int) -> bytes | None:
    """``start`` and what follows, up to ``end`` or to the last byte; ``None`` when it is more than ``max_bytes``."""
    with tempfile.SpooledTemporaryFile(max_size=_HELD_BYTES) as held:
        size = held.write(start)
        while chunk := read(_CHUNK):
            size += len(chunk)
            if size <= max_bytes:
                held.write(chunk)
            elif end is None:
                return None
            if end is not None and chunk.endswith(end):
                break
        held.seek(0)
        return held.read() if size <= max_bytes else None


_DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)


@contextmanager
def _stdin() -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.seek(0)
        yield cast("BinaryIO", copy)


@contextmanager
def _destination(path: Path) -> Iterator[BinaryIO]:
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:
            yield stream
        return
    place = Path(os.path.realpath(path))
    if sqlite_files.is_database(place):
        raise TransferFileError(
            path, "it is a store, or a backup of one, and stays as it is; give another name"
        )
    with (
        tempfile.NamedTemporaryFile(
            dir=place.parent, prefix=f".{place.name[:100]}.", delete=False
        ) as partial,
        _unlinked_on_error(partial.name),
    ):
        yield cast("BinaryIO", partial)
        partial.flush()
        os.fsync(partial.fileno())
        os.replace(partial.name, place)


@contextmanager
def _unlinked_on_error(name: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


@contextmanager
def _compressing(path: Path, raw: BinaryIO) -> Iterator[BinaryIO]:
    if path.suffix == ".gz":
        # Without name and time, equal exports are equal files.
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as stream:
            yield cast("BinaryIO", stream)
    elif path.suffix == ".zst":
        with _zstd_writer(_zstd(path), raw) as stream:
            yield stream
    else:
        yield raw


@contextmanager
def _decompressing(path: Path, start: bytes, raw: BinaryIO) -> Iterator[BinaryIO]:
    if start.startswith(_GZIP):
        with gzip.GzipFile(fileobj=raw) as stream:
            yield cast("BinaryIO", stream)
    elif start == _ZSTD:
        module = _zstd(path)
        try:
            if hasattr(module, "ZstdFile"):
                yield module.open(raw, "rb")
            else:
                yield cast("BinaryIO", io.BufferedReader(_ZstdReader(raw, module.ZstdDecompressor), _CHUNK))
        except module.ZstdError as error:
            raise TransferFileError(path, "it is damaged or cut off") from error
    else:
        yield raw


class _ZstdReader(io.RawIOBase):
    """Reads zstd frames through the package ``zstandard``, whose own readers take a file that is cut off for complete."""

    def __init__(self, raw: BinaryIO, make_decompressor: Callable[[], Any]) -> None:
        self._raw = raw
        self._make = make_decompressor
        self._frame: Any = None
        self._given = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if not self._given and not self._fill():
                return 0
            self._decompress()
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _fill(self) -> bool:
        # A block of 4 bytes may hold 128 KiB: small bites bound the memory that a hostile file takes.
        self._given = self._raw.read(_ZSTD_BITE)
        if not self._given and self._frame is not None:
            raise EOFError("a frame has no end")
        return bool(self._given)

    def _decompress(self) -> None:
        if self._frame is None:
            self._frame = self._make().decompressobj()
        self._ready = memoryview(self._frame.decompress(self._given))
        self._given = b""
        if self._frame.eof:
            self._given = self._frame.unused_data
            self._frame = None


def _zstd_writer(module: Any, raw: BinaryIO) -> AbstractContextManager[BinaryIO]:
    """With a checksum of the content, without which damage need not show."""
    if hasattr(module, "ZstdFile"):
        found = module.open(raw, "wb", options={module.CompressionParameter.checksum_flag: 1})
    else:
        found = module.ZstdCompressor(write_checksum=True).stream_writer(raw, closefd=False)
    return cast("AbstractContextManager[BinaryIO]", found)


def _zstd(path: Path) -> ModuleType | Any:
    for name in ("compression.zstd", "zstandard"):
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    raise TransferFileError(path, "zstd needs Python 3.14 or: pip install 'hermes-state[zstd]'")
