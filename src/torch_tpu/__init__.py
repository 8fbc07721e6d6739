"""The PyTorch backend for TPUs. ``import torch`` is enough to have it; importing this package does the same."""

__version__ = "0.1.0"

import os

import torch  # noqa: F401  (first: it calls the loader at its end, which needs a complete torch)

from torch_tpu._loader import load, problem

cmake_prefix_path = os.path.join(os.path.dirname(__file__), "share", "cmake")
"""For ``find_package(torch_tpu)`` in C++ programs."""

load()
if problem() is None:
    from torch_tpu._compile.report import compile_report as compile_report
    from torch_tpu._compile.step import compile_step as compile_step
