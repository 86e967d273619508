"""Whether the layers with ``Mlx`` in their names run here."""

__all__ = ["is_mlx_available"]


def is_mlx_available() -> bool:
    """False: no layer of this package runs on Apple's MLX, whether that is installed or not."""
    return False
