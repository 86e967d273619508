"""BITorch Engine's layers for Apple's MLX: not part of this package."""

raise ImportError("MPQLinearMlx needs Apple's MLX and is not part of this package: use MPQLinearCuda or MPQLinearBase")
