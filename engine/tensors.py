"""What is handed in as a tensor is one, with the axes that were expected."""

from torch import Tensor

__all__ = ["require_tensor"]


def require_tensor(value: object, name: str, axes: str = "") -> None:
    """Refuses what is no tensor, and one with other axes than `axes` names ("batch time width"; "" for any).

    Raises `ValueError` with what was expected, what came, and in which input.
    """
    if not isinstance(value, Tensor):
        raise ValueError(f"{name}: expected a tensor, got {type(value).__name__}; torch.as_tensor makes one")
    if axes and value.ndim != len(axes.split()):
        told = " × ".join(axes.split())
        raise ValueError(f"{name}: expected {told}, got shape {tuple(value.shape)}")
