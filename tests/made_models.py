"""Files of models without weights."""

from __future__ import annotations

from pathlib import Path

from recipe.spiral import main_spiral

SHIPPED = Path(main_spiral.__file__).parent / "shipped" / "tiny"


def without_weights(file: Path) -> None:
    """A whole file of safetensors that has none."""
    file.write_bytes((2).to_bytes(8, "little") + b"{}")
