"""PyTorch's OpInfos and ModuleInfos, run on the CPU and on the device and compared.

A *check* runs one (OpInfo, dtype) or ModuleInfo and returns a `Verdict` for each kind of use (KINDS). Only what the CPU
itself can do counts; what both refuse must be refused with the same exception type and first line (kind "error").
`tools/sweep.py` runs all of them, `test_sweep.py` a part.
"""

import collections
import copy
import dataclasses
import functools
import re
import signal
import unittest.mock
import warnings

import torch
import torch.autograd.forward_ad as fwAD
from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.opinfo.core import DecorateInfo, SampleInput

KINDS = {
    "forward": "functional form: values, dtype, shape, strides, what it aliases",
    "inplace": "in-place form: the result and the written tensor",
    "out": "out= of another memory order, and an empty one that is resized",
    "gradient": "first derivatives, backward",
    "forward_ad": "first derivatives, forward mode",
    "gradgrad": "second derivatives, backward of backward",
    "noncontiguous": "non-contiguous operands",
    "views": "operands with the conj and the neg bit",
    "empty": "one size of the operands set to 0",
    "error": "what the CPU refuses: exception type and first line",
}
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
)
# Memory that nobody wrote: there is nothing to compare but shape, dtype and strides.
UNWRITTEN = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_"}
# Of equal elements PyTorch lets any be taken: places differ, and so do the places of gradients.
TIES = {"sort", "topk", "kthvalue", "median", "nanmedian", "mode"}
WIDER = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex64: torch.complex128,
}
# Arguments that PyTorch takes on the CPU only, whatever the device of the others.
ON_THE_CPU = {"tensor_split": ("args",)}
# torch.testing's own, per dtype: (rtol, atol).
DEFAULT_TOLERANCE = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
# The test classes of PyTorch whose tolerances for an OpInfo count here: they compare devices and forms of an op.
# Those of the compilers and of JIT do not.
_COMPARING = {None, "TestCommon", "TestUnaryUfuncs", "TestBinaryUfuncs", "TestReductions", "TestMathBits"}
# Beyond this a kind of a case is not run further: the rest of its samples is left out, and said so.
LIMIT_S = 60


class Mismatch(AssertionError):
    """The device's result is not the CPU's. `what`: value, dtype, shape, stride, alias, device, count, type."""

    def __init__(self, what, text):
        super().__init__(text)
        self.what = what


class Timeout(BaseException):
    """The time limit of a check; no `except Exception` may swallow it."""


@dataclasses.dataclass
class Verdict:
    """How many samples of one kind were compared, how many agreed, and the first few that did not."""

    n: int = 0
    ok: int = 0
    failures: list = dataclasses.field(default_factory=list)

    def passed(self):
        self.n += 1
        self.ok += 1

    def failed(self, sample, what, text):
        self.n += 1
        if len(self.failures) < 4:
            self.failures.append({"sample": sample, "what": what, "text": " ".join(str(text).split())[:300]})


# ---- values on both sides ----


def tensors(value):
    """All tensors in nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple)) else []


def mapped(value, f):
    """The same nesting with f of each tensor; named tuples become tuples."""
    if isinstance(value, torch.Tensor):
        return f(value)
    if isinstance(value, (list, tuple)):
        made = [mapped(v, f) for v in value]
        return made if isinstance(value, list) else type(value)(made) if type(value) is torch.Size else tuple(made)
    if isinstance(value, dict):
        return {k: mapped(v, f) for k, v in value.items()}
    return value


class Copier:
    """Copies arguments to a device, storage by storage: strides, offsets, shared memory and view bits are kept."""

    def __init__(self, device):
        self.device, self.storages = device, {}

    def tensor(self, t):
        if t.layout is not torch.strided or type(t) not in (torch.Tensor, torch.nn.Parameter):
            return t.detach().to(self.device).requires_grad_(t.requires_grad)
        with torch.no_grad():
            bare = t.detach()
            if t.is_neg():
                bare = torch._neg_view(bare)
            if t.is_conj():
                bare = bare.conj()
            storage = t.untyped_storage()
            key = (storage.data_ptr(), storage.nbytes(), t.dtype)
            if storage.nbytes() == 0 or key not in self.storages:
                flat = bare.as_strided((storage.nbytes() // t.element_size(),), (1,), 0)
                self.storages[key] = (flat.to(self.device, copy=True), t)
            there = self.storages[key][0].as_strided(t.shape, t.stride(), t.storage_offset())
            if t.is_conj():
                there = there.conj()
            if t.is_neg():
                there = torch._neg_view(there)
        return there.detach().requires_grad_(t.requires_grad)

    def __call__(self, value):
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, (torch.device, str)) and str(value) == "cpu":
            return self.device
        if isinstance(value, (list, tuple)) and type(value) is not torch.Size:
            return type(value)([self(v) for v in value])
        if isinstance(value, dict):
            return {k: self(v) for k, v in value.items()}
        return value


def arguments(sample, device, stay=(), wide=None):
    """(args, kwargs) of the sample as tensors of their own on the device.

    `stay`: "args" remain on the CPU. `wide`: a dtype for the floating (or the complex) tensors.
    """
    if wide is not None:
        sample = sample.transform(
            lambda t: (
                t.to(wide if t.is_complex() == wide.is_complex else WIDER.get(t.dtype, t.dtype)).requires_grad_(
                    t.requires_grad
                )
                if isinstance(t, torch.Tensor) and (t.dtype.is_floating_point or t.dtype.is_complex)
                else t
            )
        )
    to = Copier(device)
    others = Copier("cpu") if "args" in stay else to
    return [to(sample.input), *map(others, sample.args)], to(sample.kwargs)


def significant_strides(t):
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1] if t.numel() else []


def alias_of(t, args):
    """The first argument whose storage t shares, or -1."""
    if t.layout is not torch.strided or t.untyped_storage().nbytes() == 0:
        return -1
    pointer = t.untyped_storage().data_ptr()
    for i, a in enumerate(args):
        if a.layout is torch.strided and a.untyped_storage().data_ptr() == pointer:
            return i
    return -1


def host(t):
    """A tensor of the device on the CPU; a dense one in another order is read without a program of its own."""
    t = t.detach()
    if t.layout is not torch.strided or t.is_conj() or t.is_neg() or t.is_contiguous():
        return t.cpu()
    n = t.untyped_storage().nbytes() // t.element_size()
    return t.as_strided((n,), (1,), 0).cpu().as_strided(t.shape, t.stride(), t.storage_offset())


def compare(got, want, tolerance, *, values=True, layout=True):
    """Raises Mismatch unless the results, tensors or plain values, are the same."""
    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            raise Mismatch("count", f"{type(got).__name__} instead of {len(want)} results")
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            try:
                compare(g, w, tolerance, values=values, layout=layout)
            except Mismatch as e:
                raise Mismatch(e.what, f"result {i}: {e}") from None
        return
    if not isinstance(want, torch.Tensor):
        same = got == want or (got != got and want != want)
        if not same and isinstance(want, (float, complex)) and values:
            torch.testing.assert_close(torch.tensor(got), torch.tensor(want))
        elif not same and values:
            raise Mismatch("value", f"{got!r} instead of {want!r}")
        return
    if not isinstance(got, torch.Tensor):
        raise Mismatch("type", f"{type(got).__name__} instead of a tensor")
    if want.device.type == "cpu" and got.device.type != "tpu":
        raise Mismatch("device", f"a result on {got.device}")
    if got.dtype != want.dtype:
        raise Mismatch("dtype", f"{got.dtype} instead of {want.dtype}")
    if got.layout != want.layout:
        raise Mismatch("type", f"layout {got.layout} instead of {want.layout}")
    if got.shape != want.shape:
        raise Mismatch("shape", f"{tuple(got.shape)} instead of {tuple(want.shape)}")
    if layout and want.layout is torch.strided and significant_strides(got) != significant_strides(want):
        raise Mismatch("stride", f"{got.stride()} instead of {want.stride()} of {tuple(want.shape)}")
    if layout and (got.is_conj(), got.is_neg()) != (want.is_conj(), want.is_neg()):
        raise Mismatch("alias", "another conj or neg bit")
    if not values:
        host(got)
        return
    rtol, atol = tolerance.get(want.dtype, (0, 0))
    try:
        torch.testing.assert_close(
            host(got), want.detach(), rtol=rtol, atol=atol, equal_nan=True, check_stride=False, check_layout=True
        )
    except AssertionError as e:
        raise Mismatch("value", e) from None


def check_aliases(got, want, got_args, want_args):
    for i, (g, w) in enumerate(zip(tensors(got), tensors(want), strict=True)):
        if alias_of(g, tensors(got_args)) != alias_of(w, tensors(want_args)):
            raise Mismatch("alias", f"result {i} shares memory with argument {alias_of(g, tensors(got_args))}, "
                                    f"not {alias_of(w, tensors(want_args))}")  # fmt: skip
        if alias_of(w, tensors(want_args)) >= 0 and g.storage_offset() != w.storage_offset():
            raise Mismatch("stride", f"result {i}: offset {g.storage_offset()} instead of {w.storage_offset()}")


def mean_of(t):
    """The mean of the values, or of their squares where they are complex."""
    t = host(t).detach().resolve_conj().resolve_neg()
    return (t.abs().square() if t.is_complex() else t).double().mean().item() if t.numel() else 0.0


def tolerance_of(op):
    """{dtype: (rtol, atol)}: torch.testing's, widened where the OpInfo's tests that compare devices say so."""
    found = {dtype: list(t) for dtype, t in DEFAULT_TOLERANCE.items()}
    for info in op.decorators:
        if not isinstance(info, DecorateInfo) or info.cls_name not in _COMPARING:
            continue
        if info.device_type not in (None, "cpu", "cuda"):
            continue
        for decorator in info.decorators:
            if isinstance(decorator, toleranceOverride):
                for dtype, t in decorator.d.items():
                    if dtype in found:
                        found[dtype] = [max(found[dtype][0], t.rtol), max(found[dtype][1], t.atol)]
            elif isinstance(decorator, precisionOverride):
                for dtype, atol in decorator.d.items():
                    if dtype in found:
                        found[dtype][1] = max(found[dtype][1], atol)
    return {dtype: tuple(t) for dtype, t in found.items()}


def first_line(error):
    """The exception's first line, with the device's name as the CPU's."""
    text = (str(error).splitlines() or [""])[0]
    # What the data makes wrong is told later, so it names the op.
    text = re.sub(r"^aten::[\w.]+: ", "", text)
    # Of several wrong indices the CPU names the one that a thread met first.
    text = re.sub(r"index -?\d+ is out", "index N is out", text)
    return text.replace("tpu:0", "cpu").replace("'tpu'", "'cpu'")


def raised(program):
    """(result, None), or (None, the exception)."""
    try:
        return program(), None
    except Exception as e:
        return None, e


def names_the_device(error):
    """Errors whose words are about a particular device or about Python objects: only their type is compared."""
    return "CPU" in str(error) or "cpu" in str(error) or " at 0x" in str(error)


def same_refusal(got, want):
    """Raises Mismatch unless `got` is an exception like the CPU's `want`."""
    if got is None:
        raise Mismatch("silent", f"no error, but CPU raises {type(want).__name__}: {first_line(want)}")
    if type(got) is not type(want):
        raise Mismatch(
            "error type", f"{type(got).__name__}: {first_line(got)} | CPU: {type(want).__name__}: {first_line(want)}"
        )
    if first_line(got) != first_line(want) and not names_the_device(want):
        raise Mismatch("error text", f"{first_line(got)} | CPU: {first_line(want)}")


def signature(value):
    """What makes two samples the same program: shapes, strides and dtypes of tensors, and every other argument."""
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.stride() if value.layout is torch.strided else value.layout, value.dtype,
                value.requires_grad, value.is_conj(), value.is_neg())  # fmt: skip
    if isinstance(value, SampleInput):
        return signature([value.input, value.args, value.kwargs])
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(signature, value))
    if isinstance(value, dict):
        return tuple((k, signature(v)) for k, v in value.items())
    return (type(value).__name__, repr(value))


def distinct(samples, most=None):
    seen = set()
    for i, sample in enumerate(samples):
        if (key := signature(sample)) in seen:
            continue
        seen.add(key)
        yield i, sample
        if len(seen) == most:
            return


def weights_for(outs):
    """The same weights on both sides, not all ones: a mistake must not cancel out."""
    made = []
    for o in outs:
        w = torch.linspace(0.5, 1.5, max(o.numel(), 1), dtype=torch.float64)[: o.numel()].reshape(o.shape)
        made.append((w.to(o.dtype) * (1 - 0.5j) if o.dtype.is_complex else w.to(o.dtype)).to(o.device))
    return made


def differentiable(value):
    return [t for t in tensors(value) if t.requires_grad and (t.dtype.is_floating_point or t.dtype.is_complex)]


# ---- one OpInfo with one dtype ----


class OpCheck:
    """Runs the kinds of use of one OpInfo with one dtype; `verdicts` holds what came of it."""

    def __init__(self, op, dtype, *, samples=None, kinds=tuple(KINDS)):
        self.op, self.dtype, self.most, self.kinds = op, dtype, samples, kinds
        self.tolerance = tolerance_of(op)
        self.verdicts = collections.defaultdict(Verdict)
        self.unwritten = op.name in UNWRITTEN
        self.stay = ON_THE_CPU.get(op.name, ())
        self.wide = None  # the dtype to compute in instead of the samples' own

    def run(self):
        torch.manual_seed(0)
        grads = self.op.supports_autograd and self.dtype in self.op.supported_backward_dtypes("cpu")
        wants_grad = grads and bool({"gradient", "gradgrad", "forward_ad"} & set(self.kinds))
        for i, sample in distinct(self.op.sample_inputs("cpu", self.dtype, requires_grad=wants_grad), self.most):
            self.sample(i, sample, wants_grad)
        if "error" in self.kinds and self.op.error_inputs_func is not None and self.is_first_dtype():
            self.error_inputs()
        return dict(self.verdicts)

    def is_first_dtype(self):
        return self.dtype == next((d for d in DTYPES if d in self.op.supported_dtypes("cpu")), None)

    def sample(self, i, sample, grads):
        with torch.no_grad():
            want = self.functional("forward", i, sample, self.op)
            if want is None:
                return
            if "inplace" in self.kinds and self.op.inplace_variant:
                self.functional("inplace", i, sample, self.op.inplace_variant)
            if "out" in self.kinds and self.op.supports_out:
                self.out(i, sample, want)
            if "noncontiguous" in self.kinds and not self.unwritten:
                other, error = raised(sample.noncontiguous)
                if error is None and signature(other) != signature(sample):
                    self.functional("noncontiguous", i, other, self.op)
            if "views" in self.kinds:
                for other in self.with_view_bits(sample):
                    self.functional("views", i, other, self.op, instead=want)
            if "empty" in self.kinds and (other := self.emptied(sample)):
                self.functional("empty", i, other, self.op)
        if not grads:
            return
        if "gradient" in self.kinds:
            self.both("gradient", i, functools.partial(self.gradients, sample=sample, order=1))
        if "gradgrad" in self.kinds and self.op.supports_gradgrad:
            self.both("gradgrad", i, functools.partial(self.gradients, sample=sample, order=2))
        if "forward_ad" in self.kinds and self.op.supports_forward_ad:
            self.both("forward_ad", i, functools.partial(self.tangents, sample=sample))

    # Runs program("cpu") and program("tpu") and enters what came of it.
    # `instead`: what the values should be where the CPU contradicts itself: some of its kernels write an out= tensor
    # of another memory order wrongly, or do not look at the neg bit.
    def both(self, kind, i, program, *, values=True, instead=None):
        torch.manual_seed(1)
        want, refused = raised(lambda: program("cpu"))
        if refused is not None:
            if kind not in ("inplace", "empty") or "error" not in self.kinds:
                return None  # the CPU itself cannot
            torch.manual_seed(1)
            got, error = raised(lambda: program("tpu"))
            if error is None:
                _, error = raised(torch.tpu.synchronize)
            self.enter("error", i, lambda: same_refusal(error, refused))
            return None
        torch.manual_seed(1)
        got, error = raised(lambda: program("tpu"))
        if error is not None:
            self.verdicts[kind].failed(i, "raises " + type(error).__name__, first_line(error))
            return want

        def check():
            got_value, got_args = got
            want_value, want_args = want
            compare(got_value, want_value, self.tolerance, values=values and not self.unwritten)
            if got_args is not None:
                check_aliases(got_value, want_value, got_args, want_args)

        try:
            check()
        except Mismatch as e:
            if e.what == "value" and self.is_random(program, want):
                self.enter(kind, i, lambda: self.alike(program, got[0], want[0]))
            elif e.what == "value" and self.is_also_right(kind, program, got, want, instead):
                self.verdicts[kind].passed()
            else:
                self.verdicts[kind].failed(i, e.what, e)
        except Exception as e:
            self.verdicts[kind].failed(i, "raises " + type(e).__name__, first_line(e))
        else:
            self.verdicts[kind].passed()
        return want

    def enter(self, kind, i, check):
        try:
            check()
        except Mismatch as e:
            self.verdicts[kind].failed(i, e.what, e)
        else:
            self.verdicts[kind].passed()

    # Whether another seed gives another result on the CPU.
    def is_random(self, program, want):
        torch.manual_seed(2)
        # Some OpInfos set a seed themselves.
        with unittest.mock.patch.object(torch, "manual_seed", lambda seed: _manual_seed(seed + 1)):
            again, error = raised(lambda: program("cpu"))
        if error is not None:
            return False
        try:
            torch.testing.assert_close(tensors(again[0]), tensors(want[0]), rtol=0, atol=0, equal_nan=True)
        except AssertionError:
            return True
        return False

    # Other values than the CPU's that are as good.
    def is_also_right(self, kind, program, got, want, instead):
        return (
            (self.op.name in TIES and self.equal_up_to_ties(kind, got[0], want[0]))
            or self.as_accurate(program, got, want)
            or self.is_else_right(got, want, instead)
        )

    def equal_up_to_ties(self, kind, got, want):
        try:
            compare(got, want, self.tolerance, values=False)
            for g, w in zip(tensors(got), tensors(want), strict=True):
                if w.dtype != torch.int64:
                    rtol, atol = self.tolerance.get(w.dtype, (0, 0))
                    pair = [host(g).detach(), w.detach()]
                    if kind in ("gradient", "gradgrad", "forward_ad"):
                        pair = [t.flatten().sort()[0] for t in pair]
                    torch.testing.assert_close(*pair, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError:
            return False
        return True

    def is_else_right(self, got, want, instead):
        if instead is None:
            return False
        try:
            compare(got[0], instead, self.tolerance, layout=False)
            compare(got[0], want[0], self.tolerance, values=False)
        except Mismatch:
            return False
        return True

    # Where both differ by rounding only: whether the device is not farther (by more than twice) from the result in
    # double precision than the CPU is. Sums of large terms of both signs have no tolerance that fits all of them.
    def as_accurate(self, program, got, want):
        if self.dtype not in WIDER:
            return False
        torch.manual_seed(1)
        self.wide = WIDER[self.dtype]
        try:
            exact, error = raised(lambda: program("cpu"))
        finally:
            self.wide = None
        got, want = tensors(got[0]), tensors(want[0])
        exact = tensors(exact[0]) if error is None else []
        if len(exact) != len(want):
            return False
        for g, w, x in zip(got, want, exact, strict=True):
            if not (w.dtype.is_floating_point or w.dtype.is_complex):
                if not torch.equal(host(g), w):
                    return False
                continue
            g, w, x = (host(t).detach().to(WIDER[self.dtype]) for t in (g, w, x))
            if g.shape != x.shape or not torch.equal(g.isfinite(), w.isfinite()):
                return False
            same = g == w
            off, bound = (g - x).abs()[~same], (w - x).abs()[~same]
            if off.numel() and not off.max() <= 2 * bound.max():
                return False
        return True

    # Random results: everything but the values; and of many values the mean, against what other seeds give on the CPU.
    def alike(self, program, got, want):
        compare(got, want, self.tolerance, values=False)
        if max((w.numel() for w in tensors(want)), default=0) < 100:
            return
        means = [[mean_of(t) for t in tensors(want)]]
        for seed in range(3, 13):
            torch.manual_seed(seed)
            with unittest.mock.patch.object(torch, "manual_seed", lambda _, seed=seed: _manual_seed(seed)):
                means.append([mean_of(t) for t in tensors(program("cpu")[0])])
        for g, others in zip(tensors(got), torch.tensor(means).T, strict=True):
            mean, bound = mean_of(g), 8 * others.std() + 1e-6
            if others.isfinite().all() and abs(mean - others.mean()) > bound:
                raise Mismatch("value", f"mean {mean:.4g} instead of about {others.mean():.4g}")

    def functional(self, kind, i, sample, function, instead=None):
        def program(device):
            args, kwargs = arguments(sample, device, self.stay, self.wide)
            with torch.no_grad():
                value = function(*args, **kwargs)
                if kind == "inplace":
                    return [value, args[0]], [*args, kwargs]
            return value, [*args, kwargs]

        want = self.both(kind, i, program, instead=instead)
        return None if want is None else want[0]

    def out(self, i, sample, want):
        if not tensors(want) or not all(
            isinstance(t, torch.Tensor) for t in ([want] if isinstance(want, torch.Tensor) else want)
        ):
            return

        def program(device, make):
            args, kwargs = arguments(sample, device, self.stay, self.wide)
            out = mapped(want, lambda t: make(t, device))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = self.op(*args, **kwargs, out=out)
            if not all(v is o for v, o in zip(tensors(value), tensors(out), strict=True)):
                raise Mismatch("alias", "the result is not the out= tensor")
            return mapped(out, lambda t: t), None

        def dtype_of(t):
            return t.dtype if self.wide is None else WIDER.get(t.dtype, t.dtype)

        def reversed_order(t, device):
            made = torch.empty(tuple(reversed(t.shape)), dtype=dtype_of(t), device=device)
            return made.permute(tuple(reversed(range(t.dim()))))

        def empty(t, device):
            return torch.empty(0, dtype=dtype_of(t), device=device)

        for make in (reversed_order, empty):
            self.both("out", i, functools.partial(program, make=make), instead=want)

    def with_view_bits(self, sample):
        complex_ = self.dtype.is_complex
        if complex_ and self.op.test_conjugated_samples:
            yield sample.transform(lambda t: t.conj().resolve_conj().conj() if _is(t, complex) else t)
        if self.op.test_neg_view and (complex_ or self.dtype.is_floating_point):
            yield sample.transform(lambda t: torch._neg_view(torch.neg(t)) if _is(t, float, complex) else t)

    # The sample with the first size of its first tensor set to 0 wherever a tensor has it.
    def emptied(self, sample):
        first = next((t for t in tensors([sample.input, sample.args]) if t.dim() and t.numel()), None)
        if first is None or first.layout is not torch.strided:
            return None
        size = first.shape[0]
        if any(t.layout is not torch.strided for t in tensors([sample.input, sample.args, sample.kwargs])):
            return None
        return sample.transform(
            lambda t: (
                t.new_empty([0 if n == size else n for n in t.shape])
                if isinstance(t, torch.Tensor) and size in t.shape
                else t
            )
        )

    def gradients(self, device, sample, order):
        args, kwargs = arguments(sample, device, self.stay, self.wide)
        leaves = differentiable([args, kwargs])
        value = self.op(*args, **kwargs)
        outs = differentiable(sample.output_process_fn_grad(value))
        if not leaves or not outs:
            return [], None
        found = torch.autograd.grad(outs, leaves, weights_for(outs), allow_unused=True, create_graph=order == 2)
        if order == 2:
            firsts = [g for g in found if g is not None and g.requires_grad]
            if not firsts:
                return [], None
            found = torch.autograd.grad(firsts, leaves, weights_for(firsts), allow_unused=True)
        return [g is None for g in found] + [g.detach() for g in found if g is not None], None

    def tangents(self, device, sample):
        with fwAD.dual_level():
            args, kwargs = arguments(sample, device, self.stay, self.wide)

            def dual(t):
                if not t.requires_grad:
                    return t
                tangent = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
                return fwAD.make_dual(t.detach(), tangent.copy_(weights_for([t])[0]))

            value = self.op(*mapped(args, dual), **mapped(kwargs, dual))
            value = sample.output_process_fn_grad(value)
            found = [fwAD.unpack_dual(t).tangent for t in tensors(value)]
        return [t is None for t in found] + [t.detach() for t in found if t is not None], None

    def error_inputs(self):
        for i, case in enumerate(self.op.error_inputs("cpu")):
            sample = case.sample_input

            def program(device, sample=sample):
                args, kwargs = arguments(sample, device, self.stay, self.wide)
                return self.op(*args, **kwargs)

            with torch.no_grad():
                _, want = raised(lambda: program("cpu"))
                if want is None:
                    continue
                _, got = raised(lambda: program("tpu"))
                if got is None:
                    _, got = raised(torch.tpu.synchronize)
            self.enter("error", f"error {i}", functools.partial(same_refusal, got, want))


_manual_seed = torch.manual_seed


def _is(value, *kinds):
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return (complex in kinds and value.dtype.is_complex) or (float in kinds and value.dtype.is_floating_point)


# ---- one ModuleInfo with one dtype ----


class ModuleCheck:
    """Runs the inputs of one ModuleInfo: outputs, and the gradients of parameters and inputs."""

    def __init__(self, info, dtype, *, samples=None, kinds=tuple(KINDS)):
        self.info, self.dtype, self.most = info, dtype, samples
        self.verdicts = collections.defaultdict(Verdict)
        self.tolerance = tolerance_of(info)

    def run(self):
        for training in (True, False) if self.info.train_and_eval_differ else (True,):
            torch.manual_seed(0)
            inputs = self.info.module_inputs_func(
                self.info, device="cpu", dtype=self.dtype, requires_grad=True, training=training
            )
            for i, given in enumerate(inputs):
                if given.forward_input is None or (self.most and i >= self.most):
                    continue
                self.one(i, given, training)
        return dict(self.verdicts)

    def one(self, i, given, training):
        torch.manual_seed(3)
        c = given.constructor_input
        kwargs = dict(c.kwargs)
        module, error = raised(lambda: self.info.module_cls(*c.args, **kwargs, dtype=self.dtype))
        if error is not None:
            module, error = raised(lambda: self.info.module_cls(*c.args, **kwargs).to(self.dtype))
        if error is not None:
            return
        module.train(training)
        if self.info.is_lazy:  # the first call makes its parameters
            module(*given.forward_input.args, **given.forward_input.kwargs)

        def program(device):
            there = copy.deepcopy(module).to(device)
            to = Copier(device)
            args, kwargs = [to(v) for v in given.forward_input.args], to(given.forward_input.kwargs)
            torch.manual_seed(4)
            out = there(*args, **kwargs)
            outs, leaves = differentiable(out), differentiable([args, kwargs, list(there.parameters())])
            found = torch.autograd.grad(outs, leaves, weights_for(outs), allow_unused=True) if outs and leaves else []
            return out, [g for g in found if g is not None], [b.detach() for b in there.buffers()]

        want, error = raised(lambda: program("cpu"))
        if error is not None:
            return
        got, error = raised(lambda: program("tpu"))
        for k, kind in enumerate(("forward", "gradient")):
            if error is not None:
                self.verdicts[kind].failed(i, "raises " + type(error).__name__, first_line(error))
                continue
            try:
                compare(got[k], want[k], self.tolerance)
                if k == 0:
                    compare(got[2], want[2], self.tolerance)
            except Mismatch as e:
                again = program("cpu") if e.what == "value" else None
                random = again is not None and not all(
                    torch.equal(a, b) for a, b in zip(tensors(again[k]), tensors(want[k]), strict=True)
                )
                # With a seed of its own, dropout cannot be compared.
                drops = any(isinstance(m, torch.nn.modules.dropout._DropoutNd) for m in module.modules()) and training
                rates = [getattr(m, "dropout", 0) for m in module.modules()] + [
                    getattr(m, "p", 0) for m in module.modules()
                ]
                is_drawn = random or drops or (training and any(isinstance(r, float) and 0 < r <= 1 for r in rates))
                if e.what == "value" and is_drawn:
                    self.verdicts[kind].passed()
                else:
                    self.verdicts[kind].failed(i, e.what, e)
            except Exception as e:
                self.verdicts[kind].failed(i, "raises " + type(e).__name__, first_line(e))
            else:
                self.verdicts[kind].passed()


# ---- all of them ----


@functools.cache
def databases():
    """{name: OpInfo or ModuleInfo}; modules are called "module nn.Linear"."""
    found = {}
    for op in op_db:
        found[op.full_name if hasattr(op, "full_name") else op.name] = op
    for info in module_db:
        found["module " + info.name] = info
    return found


def tasks():
    """All (name, dtype name) that the CPU supports."""
    return [
        (name, str(dtype)[6:])
        for dtype in DTYPES
        for name, info in databases().items()
        if dtype in info.supported_dtypes("cpu")
    ]


def run(name, dtype, *, samples=None, kinds=tuple(KINDS), limit_s=LIMIT_S):
    """One task: {"kinds": {kind: Verdict as dict}, "fallbacks": {op: count}, "broken": text or None}."""

    def out_of_time(*_):
        raise Timeout

    info = databases()[name]
    check = (ModuleCheck if name.startswith("module ") else OpCheck)(
        info, getattr(torch, dtype), samples=samples, kinds=kinds
    )
    broken = None
    torch.tpu.reset_counters()
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(limit_s)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check.run()
    except Timeout:
        broken = f"stopped after {limit_s} s"
    except Exception as e:
        broken = f"{type(e).__name__}: {first_line(e)}"
    finally:
        signal.alarm(0)
    raised(torch.tpu.synchronize)
    return {
        "kinds": {kind: dataclasses.asdict(v) for kind, v in check.verdicts.items()},
        "fallbacks": dict(torch.tpu.counters()["fallbacks"]),
        "compiles": torch.tpu.counters()["compiles"],
        "broken": broken,
    }
