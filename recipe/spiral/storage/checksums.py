"""Lines of JSON with a checksum: a digit that a disk has changed still is a number."""

from __future__ import annotations

import re
import zlib

_CHECKSUM = re.compile(rb',"checksum":"([0-9a-f]{8})"\}\n?')
_LENGTH = len(b',"checksum":"00000000"}\n')


class Unsealed(ValueError):
    """A line has no checksum, or another one."""


def seal(record: bytes) -> bytes:
    """The line of an object that is JSON already: with one field more, ``checksum``."""
    return b'%s,"checksum":"%08x"}\n' % (record[:-1], zlib.crc32(record))


def unseal(line: bytes) -> bytes:
    """The object of a line, with or without its newline.

    Raises:
        Unsealed: the line is none of ``seal``'s, or was changed.
    """
    end = len(line) - (_LENGTH if line.endswith(b"\n") else _LENGTH - 1)
    checksum = _CHECKSUM.fullmatch(line, max(end, 0))
    if checksum is None:
        raise Unsealed("it has no checksum")
    record = line[:end] + b"}"
    if zlib.crc32(record) != int(checksum.group(1), 16):
        raise Unsealed("its checksum is another: it was changed")
    return record
