"""Random programs of views, reads and in-place writes over one storage, run on the CPU and on the device side by side.

`python tests/fuzz_views.py [first seed] [number of seeds]` runs more of them than the suite does.
"""

import random
import sys

import torch

DTYPES = (
    torch.float32,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bfloat16,
    torch.complex64,
    torch.bool,
    torch.float64,
)

VIEWS = (
    *("slice", "slice", "slice", "select", "transpose", "permute", "expand", "view", "flatten", "unfold", "as_strided"),
    *("as_strided", "dtype", "unsqueeze", "squeeze", "diagonal", "narrow", "conj", "real", "neg", "split", "movedim"),
)


def bits(t):
    """The bytes of a tensor's elements, with conj and neg resolved."""
    t = t.detach().resolve_conj().resolve_neg()
    return bytes(torch.empty(t.numel(), dtype=t.dtype).copy_(t.reshape(-1)).view(torch.uint8).numpy())


def described(t):
    return f"{str(t.dtype)[6:]}{list(t.shape)} strides {list(t.stride())} offset {t.storage_offset()}"


class Pair:
    """The same tensor on both sides."""

    def __init__(self, cpu, tpu):
        self.cpu, self.tpu = cpu, tpu


class Program:
    def __init__(self, seed, max_alive=6):
        self.random = random.Random(seed)
        self.log = [f"seed {seed}"]
        self.max_alive = max_alive
        r = self.random
        rank = r.choice((1, 2, 2, 3, 3, 4))
        shape = [r.choice((1, 2, 3, 4, 4, 6, 8)) for _ in range(rank)]
        dtype = r.choice(DTYPES)
        unwritten = r.random() < 0.2
        if unwritten:
            cpu, tpu = torch.zeros(shape, dtype=dtype), torch.empty(shape, dtype=dtype, device="tpu")
        else:
            cpu = self.values(shape, dtype)
            tpu = cpu.to("tpu")
        if rank == 4 and r.random() < 0.5:
            cpu = cpu.contiguous(memory_format=torch.channels_last)
            tpu = tpu.contiguous(memory_format=torch.channels_last)
        self.pairs = [Pair(cpu, tpu)]
        # Numbers whose bytes came from another dtype may be NaN or denormal: those are only moved.
        self.moves_only = False
        self.log.append(f"base {described(cpu)}{' unwritten' if unwritten else ''}")

    def values(self, shape, dtype):
        n = 1
        for s in shape:
            n *= s
        numbers = [self.random.randrange(0, 50) for _ in range(n)]
        if dtype is torch.bool:
            numbers = [v % 2 == 0 for v in numbers]
        elif dtype.is_complex:
            numbers = [complex(v, 50 - v) for v in numbers]
        return torch.tensor(numbers, dtype=dtype).reshape(shape)

    # ---- views ----
    def view(self, t):
        """(description, function) of a random view of a tensor like t."""
        r = self.random
        d = r.randrange(t.dim()) if t.dim() else 0
        kind = r.choice(VIEWS)
        if t.dim() == 0 and kind not in ("as_strided", "unsqueeze", "expand", "conj", "dtype", "view"):
            kind = "unsqueeze"
        n = t.size(d) if t.dim() else 1
        if kind == "slice":
            a = r.randrange(0, n + 1) if n else 0
            b, step = r.randrange(a, n + 1), r.choice((1, 1, 1, 2, 3))
            return f"slice({d}, {a}:{b}:{step})", lambda x: x[(slice(None),) * d + (slice(a, b, step),)]
        if kind == "select" and n:
            i = r.randrange(-n, n)
            return f"select({d}, {i})", lambda x: x.select(d, i)
        if kind == "transpose":
            e = r.randrange(t.dim())
            return f"transpose({d}, {e})", lambda x: x.transpose(d, e)
        if kind == "permute":
            order = r.sample(range(t.dim()), t.dim())
            return f"permute({order})", lambda x: x.permute(order)
        if kind == "expand":
            sizes = [3 if s == 1 and r.random() < 0.5 else s for s in t.shape]
            if r.random() < 0.3:
                sizes = [2, *sizes]
            return f"expand({sizes})", lambda x: x.expand(sizes)
        if kind in ("view", "flatten"):
            numel = t.numel()
            shapes = [[-1], [numel], [1, numel, 1]] + [[k, numel // k] for k in (2, 3, 4) if numel and numel % k == 0]
            shape = r.choice(shapes) if numel else [0]
            return f"view({shape})", lambda x: x.view(shape)
        if kind == "unfold" and n:
            size = r.randrange(1, n + 1)
            step = r.randrange(1, 4)
            return f"unfold({d}, {size}, {step})", lambda x: x.unfold(d, size, step)
        if kind == "as_strided":
            total = t.untyped_storage().nbytes() // t.element_size()
            for _ in range(20):
                rank = r.randrange(0, 4)
                sizes = [r.choice((1, 2, 2, 3, 4)) for _ in range(rank)]
                strides = [r.choice((0, 1, 1, 2, 3, 4, 5, 6, 8, 12)) for _ in range(rank)]
                span = sum((s - 1) * k for s, k in zip(sizes, strides, strict=True))
                if span < total:
                    offset = r.randrange(0, total - span)
                    at = (sizes, strides, offset)
                    return f"as_strided{at}", lambda x, at=at: x.as_strided(*at)
        if kind == "dtype" and not t.is_conj() and not t.is_neg() and t.dtype is not torch.bool:
            dtype = r.choice([x for x in DTYPES if x is not torch.bool])
            return f"view({dtype})", lambda x: x.view(dtype)
        if kind == "unsqueeze":
            e = r.randrange(t.dim() + 1)
            return f"unsqueeze({e})", lambda x: x.unsqueeze(e)
        if kind == "squeeze":
            return f"squeeze({d})", lambda x: x.squeeze(d)
        if kind == "diagonal" and t.dim() >= 2:
            e = (d + 1) % t.dim()
            k = r.choice((-1, 0, 0, 1))
            return f"diagonal({k}, {d}, {e})", lambda x: x.diagonal(k, d, e)
        if kind == "narrow" and n:
            a = r.randrange(n)
            m = r.randrange(1, n - a + 1)
            return f"narrow({d}, {a}, {m})", lambda x: x.narrow(d, a, m)
        if kind == "conj":
            return "conj()", lambda x: x.conj()
        if kind == "neg" and t.dtype.is_complex:
            return "conj().imag", lambda x: x.conj().imag
        if kind == "real" and t.dtype.is_complex:
            return "view_as_real", lambda x: torch.view_as_real(x.resolve_conj() if x.is_conj() else x)
        if kind == "split" and n:
            k = r.randrange(1, n + 1)
            return f"split({k}, {d})[-1]", lambda x: x.split(k, d)[-1]
        e = r.randrange(t.dim()) if t.dim() else 0
        return f"movedim({d}, {e})", lambda x: x.movedim(d, e) if x.dim() else x

    # ---- writes ----
    def repeats(self, t):
        """Whether the tensor has an element more than once in a way that PyTorch does not see."""
        if t.numel() == 0 or any(s > 1 and k == 0 for s, k in zip(t.shape, t.stride(), strict=True)):
            return False
        return len(set(self.bytes_of(t))) < t.numel()

    def bytes_of(self, t):
        """Where each element lies in the storage."""
        places = torch.tensor(t.storage_offset())
        for s, k in zip(t.shape, t.stride(), strict=True):
            places = places.unsqueeze(-1) + torch.arange(s) * k
        return (places * t.element_size()).flatten().tolist()

    def write(self, t):
        r = self.random
        expanded = any(s > 1 and k == 0 for s, k in zip(t.shape, t.stride(), strict=True))
        if self.repeats(t):
            # What the CPU writes where an element is there twice depends on its order of work.
            return r.choice([("fill_(3)", lambda x, a: x.fill_(3)), ("zero_()", lambda x, a: x.zero_())])
        moves = [
            "fill",
            "zero",
            "copy",
            "copy_self",
            "copy_other_dtype",
            "index_put",
            "masked_fill",
            "index_fill",
            "setitem",
        ]
        if not self.moves_only and t.dtype is not torch.bool:
            moves += ["add", "add_alias", "out", "foreach", "add_same", "cumsum_out", "where_out"]
            moves += ["mul", "neg"] if not t.dtype.is_complex else []  # signs of zeros
        kind = r.choice(moves)
        if expanded and kind in ("index_put", "index_fill", "masked_fill"):
            kind = "fill"  # PyTorch warns that it is deprecated on the CPU; an error on the device
        number = r.randrange(0, 9)
        alias = r.choice(self.pairs)
        mine, its = self.bytes_of(t), self.bytes_of(alias.cpu)
        if kind in ("copy_self", "add_alias") and mine != its and not set(mine).isdisjoint(its):
            kind = "fill"  # PyTorch sees some of these overlaps only; the others depend on the order of work
        if kind == "fill":
            return f"fill_({number})", lambda x, a: x.fill_(number)
        if kind == "zero":
            return "zero_()", lambda x, a: x.zero_()
        if kind == "copy":
            values = self.values(list(t.shape), t.dtype)
            if r.random() < 0.5:
                return "copy_(cpu)", lambda x, a: x.copy_(values)
            return "copy_(same device)", lambda x, a: x.copy_(values.to(x.device))
        if kind == "copy_other_dtype":
            values = self.values(list(t.shape), r.choice((torch.float32, torch.int64, torch.uint8)))
            return f"copy_({values.dtype})", lambda x, a: x.copy_(values.to(x.device))
        if kind == "copy_self":
            return f"copy_(alias {self.pairs.index(alias)})", lambda x, a: x.copy_(a(alias))
        if kind == "setitem" and t.dim():
            k = r.randrange(-t.size(0), t.size(0)) if t.size(0) else 0
            return f"[{k}] = {number}", lambda x, a: x.__setitem__(k, number)
        if kind == "index_put" and t.dim() and t.size(0):
            index = torch.tensor(r.sample(range(t.size(0)), r.randrange(1, t.size(0) + 1)))
            return f"[{index.tolist()}] = {number}", lambda x, a: x.__setitem__(index.to(x.device), number)
        if kind == "index_fill" and t.dim() and t.size(-1):
            index = torch.tensor(r.sample(range(t.size(-1)), r.randrange(1, t.size(-1) + 1)))
            return f"index_fill_(-1, {index.tolist()})", lambda x, a: x.index_fill_(-1, index.to(x.device), number)
        if kind == "masked_fill":
            mask = self.values(list(t.shape), torch.bool)
            return f"masked_fill_({number})", lambda x, a: x.masked_fill_(mask.to(x.device), number)
        if kind == "add":
            return f"add_({number})", lambda x, a: x.add_(number)
        if kind == "neg":
            return "neg_()", lambda x, a: x.neg_()
        if kind == "mul":
            return "mul_(-1)", lambda x, a: x.mul_(-1)
        if kind == "add_same":
            return "add_(itself)", lambda x, a: x.add_(x)
        if kind == "add_alias":
            return f"add_(alias {self.pairs.index(alias)}, alpha=2)", lambda x, a: x.add_(a(alias), alpha=2)
        if kind == "out":
            values = self.values(list(t.shape), t.dtype)
            return "add(v, 1, out=)", lambda x, a: torch.add(values.to(x.device), 1, out=x)
        if kind == "where_out":
            mask = self.values(list(t.shape), torch.bool)
            return "where(out=)", lambda x, a: torch.where(mask.to(x.device), x, x + 1, out=x)
        if kind == "cumsum_out" and t.dim():
            values = self.values(list(t.shape), t.dtype)
            return "cumsum(0, out=)", lambda x, a: torch.cumsum(values.to(x.device), 0, out=x)
        if kind == "foreach":
            others = [
                p for p in self.pairs if p.cpu.dtype == t.dtype and not self.repeats(p.cpu) and 0 not in p.cpu.stride()
            ]
            pick = [r.choice(others) for _ in range(min(3, len(others)))]
            if pick:
                names = [self.pairs.index(p) for p in pick]
                return f"_foreach_add_(aliases {names}, 1)", lambda x, a: torch._foreach_add_([a(p) for p in pick], 1)
        return "fill_(7)", lambda x, a: x.fill_(7)

    def both(self, on_cpu, on_tpu):
        """Runs both sides; returns the results or None when both failed in the same way."""
        results = []
        for side in (on_cpu, on_tpu):
            try:
                results.append(side())
            except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as e:
                results.append(e)
        cpu, tpu = results
        if isinstance(cpu, Exception) or isinstance(tpu, Exception):
            same = isinstance(cpu, Exception) and isinstance(tpu, Exception) and type(cpu) is type(tpu)
            assert same, self.failure(f"CPU: {cpu!r}\ntpu: {tpu!r}")
            a, b = (str(e).replace("tpu:0", "cpu").splitlines()[0] for e in results)
            # A copy of a wrong shape onto memory that it shares has two errors.
            assert a == b or a.startswith("unsupported operation"), self.failure(f"CPU: {a}\ntpu: {b}")
            self.log[-1] += f"   # {type(cpu).__name__}"
            return None
        return cpu, tpu

    def failure(self, what):
        return "\n".join([*self.log, what])

    def step(self):
        r = self.random
        p = r.choice(self.pairs)
        name = self.pairs.index(p)
        if r.random() < 0.5:
            what, make = self.view(p.cpu)
            self.log.append(f"{name}.{what}")
            made = self.both(lambda: make(p.cpu), lambda: make(p.tpu))
            if made is not None:
                c, t = made
                assert described(c) == described(t), self.failure(f"CPU: {described(c)}\ntpu: {described(t)}")
                if what.startswith("view(torch"):
                    self.moves_only = True
                if len(self.pairs) >= self.max_alive:
                    self.pairs.pop(r.randrange(1, len(self.pairs)))
                self.pairs.append(Pair(c, t))
                self.log[-1] += f" -> {described(c)}"
        else:
            what, write = self.write(p.cpu)
            self.log.append(f"{name}.{what}")
            version = p.tpu._version, p.cpu._version
            # A write that several elements of one place take is undefined on both sides.
            if self.both(lambda: write(p.cpu, lambda q: q.cpu), lambda: write(p.tpu, lambda q: q.tpu)) is not None:
                assert p.tpu._version - version[0] == p.cpu._version - version[1], self.failure(
                    "version counters differ"
                )
        self.compare()

    def compare(self):
        for i, p in enumerate(self.pairs):
            got, want = p.tpu.cpu(), p.cpu
            if (want.dtype.is_complex or want.dtype.is_floating_point) and not self.moves_only:
                got, want = got + 0, want + 0  # signs of zeros
            assert bits(got) == bits(want), self.failure(f"alias {i}, {described(want)}\nCPU: {want}\ntpu: {got}")

    def run(self, steps):
        for _ in range(steps):
            self.step()


def main():
    import torch_tpu  # noqa: F401

    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    bad = 0
    for seed in range(first, first + (int(sys.argv[2]) if len(sys.argv) > 2 else 100)):
        program = Program(seed)
        try:
            program.run(int(sys.argv[3]) if len(sys.argv) > 3 else 12)
        except AssertionError as e:
            print(f"{e}\n", flush=True)
            bad += 1
        except Exception as e:
            print(program.failure(f"{type(e).__name__}: {e}") + "\n", flush=True)
            bad += 1
    print(f"{bad} failed;", torch.tpu.counters())


if __name__ == "__main__":
    main()
