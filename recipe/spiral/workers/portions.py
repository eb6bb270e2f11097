"""How much of the logits is computed at once; apart, because whoever estimates memory needs no torch."""

#: Rows, and elements: they bound the memory besides the logits to a few times 256 MB.
ROWS, ELEMENTS = 4096, 2**26
