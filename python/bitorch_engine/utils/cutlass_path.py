"""Whether the layers with ``Cutlass`` in their names run here."""

__all__ = ["is_cutlass_available"]


def is_cutlass_available() -> bool:
    """True: these layers run on every device, and the library CUTLASS is not looked for."""
    return True
