"""The PyTorch backend for TPUs. ``import torch`` is enough to have it; importing this package does the same."""

__version__ = "0.1.0"

from torch_tpu._loader import load

load()
