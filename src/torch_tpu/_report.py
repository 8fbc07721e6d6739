"""What ``python -m torch_tpu`` prints: versions, plugin, devices, compile cache, a self-test, memory and counters."""

import argparse
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterable

import torch

from torch_tpu import __version__, _loader, _plugin


def main(arguments: list[str] | None = None) -> int:
    """Prints the report. Returns 0, or 1 where something is wrong: then the last line is one sentence about it."""
    parser = argparse.ArgumentParser(prog="python -m torch_tpu", description=__doc__)
    parser.add_argument("--no-test", action="store_true", help="do not run the self-test")
    parser.add_argument("--clear-cache", action="store_true", help="empty the compile cache on disk first")
    options = parser.parse_args(arguments)

    section("versions", versions())
    if problem := _loader.problem():
        return fail(problem)
    try:
        plugin = _plugin.find()
    except _plugin.PluginNotFound as error:
        return fail(str(error))
    section("plugin", [("path", plugin.path), ("found by", plugin.source)])
    try:
        torch.tpu.init()
    except RuntimeError as error:
        return fail(f"The plugin {plugin.path} does not work: {first_line(error)}")
    section("", platform_info())
    section("devices", devices())

    from torch_tpu import _C

    if options.clear_cache:
        _C._cache_clear()
    section("compile cache", cache())
    failed = None if options.no_test else self_test()
    section("memory", memory())
    section("counters", counters())
    if failed:
        return fail(failed)
    if cache_problem := _C._cache_info()["problem"]:
        return fail(f"The device works, but programs are compiled anew in each process: {cache_problem}")
    print("\nEverything works." if not options.no_test else "")
    return 0


def versions() -> Iterable[tuple[str, object]]:
    """Names and values for :func:`section`, as of the next functions."""
    yield "torchtpu", __version__
    yield "torch", torch.__version__
    yield "python", platform.python_version()
    yield "system", platform.platform(terse=True)
    for name in sorted(os.environ):
        if name.startswith("TORCH_TPU_"):
            yield name, os.environ[name]


def platform_info() -> Iterable[tuple[str, object]]:
    from torch_tpu import _C

    yield "platform", torch.backends.tpu.version()
    yield "eager ops", torch.tpu.eager_mode.value
    yield "PJRT C API", _C._platform_info()["api_version"]


def devices() -> Iterable[tuple[str, object]]:
    for index in range(torch.tpu.device_count()):
        free, total = torch.tpu.mem_get_info(index)
        yield (
            f"tpu:{index}",
            f"{torch.tpu.get_device_name(index)}, {total / 2**30:.1f} GiB, of which {free / 2**30:.1f} GiB are free",
        )


def memory() -> Iterable[tuple[str, object]]:
    for index in range(torch.tpu.device_count()):
        yield (
            f"tpu:{index}",
            f"{torch.tpu.memory_allocated(index) / 2**20:.1f} MiB held by this process, "
            f"{torch.tpu.max_memory_allocated(index) / 2**20:.1f} MiB at its peak",
        )


def cache() -> Iterable[tuple[str, object]]:
    from torch_tpu import _C

    info = _C._cache_info()
    yield "directory", info["directory"] if info["enabled"] else "none, it is switched off"
    if info["enabled"]:
        yield "holds", f"{info['files']} programs, {info['bytes'] / 2**20:.1f} MiB"


def counters() -> Iterable[tuple[str, object]]:
    for name, value in torch.tpu.counters().items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {count}" for key, count in value.items()) or "none"
        yield name.replace("_", " "), f"{value:.3f}" if isinstance(value, float) else value


def self_test() -> str | None:
    """Runs each check and prints its verdict. Returns a sentence about the first that failed, or None."""
    print("\nself-test")
    warnings.simplefilter("ignore")  # a fallback is among the counters
    for check in (_add, _matmul, _backward, _view_write, _compiles_once):
        name = first_line(check.__doc__)
        try:
            good = check()
            error = "gives a wrong result"
        except RuntimeError as caught:
            good, error = False, f"raises {first_line(caught)}"
        print(f"  {name:<58} {'ok' if good else 'FAILED'}")
        if not good:
            return f"The self-test '{name}' {error}."
    return None


def _same(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> bool:
    on_device = function(*[x.detach().to("tpu").requires_grad_(x.requires_grad) for x in inputs])
    return torch.allclose(on_device.cpu(), function(*inputs), rtol=1e-5, atol=1e-5)


def _inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(8, 8, generator=generator), torch.randn(8, 8, generator=generator)


def _add() -> bool:
    """adds"""
    return _same(torch.add, *_inputs())


def _matmul() -> bool:
    """multiplies matrices"""
    return _same(torch.matmul, *_inputs())


def _backward() -> bool:
    """differentiates"""

    def gradient(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad((x @ y).tanh().sum(), x)[0]

    x, y = _inputs()
    return _same(gradient, x.requires_grad_(), y)


def _view_write() -> bool:
    """writes through a view"""

    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        base = x.clone()
        base.t()[2:5, ::2].mul_(3).add_(y[:3, :4])
        return base

    return _same(write, *_inputs())


def _compiles_once() -> bool:
    """finds a program that it has compiled before"""
    x = torch.ones(7, 3, device="tpu")
    x.exp().cpu()
    before = torch.tpu.counters()["compiles"]
    x.exp().cpu()
    return torch.tpu.counters()["compiles"] == before


def section(title: str, rows: Iterable[tuple[str, object]]) -> None:
    """Prints a title, unless it is empty, and its rows of name and value."""
    if title:
        print(f"\n{title}")
    for name, value in rows:
        print(f"  {name:<20} {value}")


def fail(sentence: str) -> int:
    """Prints what is wrong. Returns the exit status."""
    sys.stdout.flush()
    print(f"\nNot working: {sentence}", file=sys.stderr)
    return 1


def first_line(what: object) -> str:
    """The first line of a text, without its end mark."""
    return str(what).strip().split("\n")[0].rstrip(".")
