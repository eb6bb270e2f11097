"""Files of lines that are packed by gzip, as any gzip reads them. How many lines there are stands in the header.

The number is an extra field of gzip's (RFC 1952, 2.3.1.1), which other programs pass over. ``record_folder`` reads.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

#: Deflate with an extra field, no time, any system; then that field: its length, its name, its content's length.
HEADER = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + struct.pack("<H2sH", 8, b"LN", 4)
COUNT = struct.Struct("<I")
#: A lower level packs twice as fast and a quarter worse.
_LEVEL = 6


def pack(number: int, lines: Iterable[bytes]) -> Iterator[bytes]:
    """A file's bytes, piece by piece. ``number`` is how many lines there are, each with its end."""
    yield HEADER + COUNT.pack(number)
    deflate = zlib.compressobj(_LEVEL, wbits=-zlib.MAX_WBITS)
    checksum = length = 0
    for line in lines:
        checksum, length = zlib.crc32(line, checksum), length + len(line)
        yield deflate.compress(line)
    yield deflate.flush() + struct.pack("<II", checksum, length & 0xFFFFFFFF)
