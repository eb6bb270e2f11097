"""Why an export ends without a folder."""

from __future__ import annotations


class ExportError(ValueError):
    """The checkpoint cannot be exported as asked; the message says why and what to do. Nothing was written."""


class Different(RuntimeError):
    """What transformers reads from the new folder is not what the checkpoint holds."""
