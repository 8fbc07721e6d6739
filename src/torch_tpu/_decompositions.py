"""PyTorch's decompositions as the C++ side asks for them: an op without a row is recorded through one of these."""

import functools

import torch

# Below the dispatcher these are ints, in the order of c10::ScalarType.
_DTYPES = """
uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32 bfloat16
quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz
uint16 uint32 uint64
"""
_MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)


@functools.cache
def _table():
    from torch._decomp import decomposition_table

    return decomposition_table


def has(op: torch._ops.OpOverload) -> bool:
    """Whether PyTorch has a decomposition of ``op`` that is not itself."""
    return op in _table()


def call(op: torch._ops.OpOverload, args: list):
    """Runs the decomposition of ``op`` on all its schema arguments, given in order."""
    positional, keywords, given = [], {}, 0
    for argument, value in zip(op._schema.arguments, args, strict=True):
        value = _restore(str(argument.real_type), value)
        if argument.kwarg_only:
            keywords[argument.name] = value
            continue
        positional.append(value)
        if not _is_default(op, argument.name, value):
            given = len(positional)
    # Decompositions may lack trailing arguments that only some overloads have. One in the middle must stay, or those
    # behind it would take its place.
    required = sum(not a.kwarg_only and not a.has_default_value() for a in op._schema.arguments)
    positional = positional[: max(given, required)]
    keywords = {k: v for k, v in keywords.items() if not _is_default(op, k, v)}
    return _table()[op](*positional, **keywords)


def _is_default(op, name, value) -> bool:
    argument = next(a for a in op._schema.arguments if a.name == name)
    if isinstance(value, torch.Tensor) or not argument.has_default_value():
        return False
    default = _restore(str(argument.real_type), argument.default_value)
    return value is default or (type(value) is type(default) and value == default)


def _restore(kind: str, value):
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if "ScalarType" in kind:
        return getattr(torch, _DTYPES.split()[value])
    if "Layout" in kind:
        return {0: torch.strided}.get(value, value)
    if "MemoryFormat" in kind:
        return _MEMORY_FORMATS[value]
    return value
