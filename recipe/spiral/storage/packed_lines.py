"""Files of lines that are packed by gzip, as any gzip reads them. How many lines there are stands in the header.

The number is an extra field of gzip's (RFC 1952, 2.3.1.1), which other programs pass over.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from .disk import real

#: Bytes of a line: a game of a thousand turns with 4,000 tokens each has less.
LONGEST = 2**27
#: Deflate with an extra field, no time, any system; then that field: its length, its name, its content's length.
_HEADER = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + struct.pack("<H2sH", 8, b"LN", 4)
_COUNT = struct.Struct("<I")
#: A lower level packs twice as fast and a quarter worse.
_LEVEL = 6


class Torn(ValueError):
    """A file ends too early, or was changed; the lines before are whole. The message names the file."""


def pack(number: int, lines: Iterable[bytes]) -> Iterator[bytes]:
    """A file's bytes, piece by piece. ``number`` is how many lines there are, each with its end."""
    yield _HEADER + _COUNT.pack(number)
    deflate = zlib.compressobj(_LEVEL, wbits=-zlib.MAX_WBITS)
    checksum = length = 0
    for line in lines:
        checksum, length = zlib.crc32(line, checksum), length + len(line)
        yield deflate.compress(line)
    yield deflate.flush() + struct.pack("<II", checksum, length & 0xFFFFFFFF)


def count(file: Path) -> int:
    """How many lines a file has, without unpacking it if this module wrote it."""
    with real(file).open("rb") as start:
        header = start.read(len(_HEADER) + _COUNT.size)
    if header.startswith(_HEADER) and len(header) == len(_HEADER) + _COUNT.size:
        return int(_COUNT.unpack(header[len(_HEADER) :])[0])
    return sum(1 for _ in unpack(file))


def unpack(file: Path) -> Iterator[bytes]:
    """A file's lines, each with its end. Raises Torn: it is damaged. What could be read of it was given before, the
    last line perhaps in part."""
    try:
        with gzip.open(real(file)) as packed:
            if not file.stat().st_size:  # which gzip takes for a file without lines
                raise EOFError("it is empty")
            # in pieces: a small file may hold a line of any length
            while line := packed.readline(LONGEST + 1):
                if len(line) > LONGEST:
                    raise EOFError(f"a line has more than {LONGEST} bytes")
                yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise Torn(f"{file}: is cut short or damaged: {error}") from error
