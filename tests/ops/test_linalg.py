"""Linear algebra against the CPU: factors that are unique by value, others by what they multiply to."""

import pytest
import torch
from ops.samples import case_id, cases, check_determined

# Of the norm of what is compared; PyTorch's own tests allow 1e-3 and 1e-7 elementwise.
PRECISION = {torch.float32: 1e-5, torch.float64: 1e-13, torch.complex64: 1e-5, torch.complex128: 1e-13}
# The other two dtypes differ in nothing that these sizes find; OpInfo's samples run in all four.
DTYPES = (torch.float32, torch.complex128)
# 40 is more than one panel of the blocked loops, and not a multiple of it.
SQUARES = [((), 0), ((), 1), ((2, 1), 5), ((), 40)]
RECTANGLES = [((), 0, 3), ((), 3, 0), ((2,), 5, 3), ((2,), 3, 5), ((), 40, 33), ((), 33, 40)]

SOLVED = ["linalg.cholesky", "linalg.cholesky_ex", "cholesky", "cholesky_solve", "cholesky_inverse", "linalg.lu_factor"]
SOLVED += ["linalg.lu_factor_ex", "linalg.lu", "linalg.lu_solve", "lu_unpack", "linalg.solve", "linalg.solve_ex"]
SOLVED += ["linalg.inv", "linalg.inv_ex", "linalg.det", "linalg.slogdet", "logdet", "linalg.solve_triangular"]
SOLVED += ["triangular_solve", "linalg.qr", "geqrf", "ormqr", "linalg.householder_product", "linalg.ldl_factor_ex"]
SOLVED += ["linalg.ldl_factor", "linalg.ldl_solve", "linalg.lstsq", "linalg.matrix_exp", "linalg.matrix_power"]
SPECTRAL = ["linalg.eigh", "linalg.eigvalsh", "linalg.svd", "linalg.svdvals", "svd", "linalg.pinv", "pinverse"]
SPECTRAL += ["linalg.matrix_rank", "linalg.cond", "linalg.matrix_norm", "linalg.norm", "linalg.tensorsolve"]


def known(names):
    from torch.testing._internal.common_methods_invocations import op_db

    present = {op.name for op in op_db}
    return [name for name in names if name in present]


@pytest.mark.parametrize(
    "case", cases(*known(SOLVED + SPECTRAL), dtypes=(torch.float64, torch.complex128)), ids=case_id
)
def test_samples_and_gradients_as_on_cpu(case):
    check_determined(*case, samples=3)


@pytest.mark.parametrize("case", cases(*known(SOLVED + SPECTRAL), dtypes=(torch.float32, torch.complex64)), ids=case_id)
def test_single_precision_samples_as_on_cpu(case):
    # Random matrices; PyTorch allows as much where conditions multiply (toleranceOverride in its linalg OpInfos).
    check_determined(*case, samples=2, grad=False, tolerance=(1e-3, 1e-3))


def assert_near(got, want, scale=1.0):
    got = got.cpu()
    assert got.shape == want.shape and got.dtype == want.dtype
    if want.numel() == 0:
        return
    error = (got - want).abs().max().item()
    allowed = scale * PRECISION[want.dtype] * max(1.0, want.abs().max().item())
    assert error <= allowed, f"off by {error}, allowed {allowed}"


def random(*shape, dtype):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def eye_like(matrix):
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype).expand(matrix.shape)


def assert_orthonormal_columns(matrix):
    gram = matrix.mH @ matrix
    assert_near(gram, eye_like(gram))


by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: str(t)[6:])
of_squares = pytest.mark.parametrize("batch, n", SQUARES)
of_rectangles = pytest.mark.parametrize("batch, m, n", [(b, n, n) for b, n in SQUARES] + RECTANGLES)


@by_dtype
@of_squares
def test_cholesky_and_its_solutions(n, batch, dtype):
    a = random(*batch, n, n, dtype=dtype)
    h = a @ a.mH + n * torch.eye(n, dtype=dtype)
    for upper in (False, True):
        factor, info = torch.linalg.cholesky_ex(h.to("tpu"), upper=upper)
        assert not info.cpu().any() and info.dtype == torch.int32 and info.shape == batch
        want = torch.linalg.cholesky(h, upper=upper)
        assert_near(factor, want, 10)
        assert_near(torch.cholesky_inverse(factor, upper=upper) @ h.to("tpu"), eye_like(h), 10)
        b = random(*batch, n, 3, dtype=dtype)
        assert_near(h.to("tpu") @ torch.cholesky_solve(b.to("tpu"), factor, upper=upper), b, 10)


@by_dtype
@of_rectangles
def test_lu(m, n, batch, dtype):
    a = random(*batch, m, n, dtype=dtype)
    got, want = torch.linalg.lu_factor_ex(a.to("tpu")), torch.linalg.lu_factor_ex(a)
    assert_near(got.LU, want.LU, 30)
    assert torch.equal(got.pivots.cpu(), want.pivots) and torch.equal(got.info.cpu(), want.info)
    p, low, up = torch.linalg.lu(a.to("tpu"))
    assert_near(p @ low @ up, a, 10)
    for part, other in zip(torch.lu_unpack(got.LU, got.pivots), (p, low, up), strict=True):
        assert_near(part, other.cpu(), 30)


@by_dtype
@of_squares
def test_systems_inverse_and_determinants(n, batch, dtype):
    a = random(*batch, n, n, dtype=dtype) / max(n, 1) ** 0.5 + 3 * torch.eye(n, dtype=dtype)
    b = random(*batch, n, 2, dtype=dtype)
    there = a.to("tpu")
    for matrix, given in ((a, there), (a.mT, there.mT)):  # determinants factor the transpose of a row-major matrix
        assert_near(torch.linalg.solve(given, b.to("tpu")), torch.linalg.solve(matrix, b), 10)
        assert_near(
            torch.linalg.solve(given, b.mT.to("tpu"), left=False), torch.linalg.solve(matrix, b.mT, left=False), 10
        )
        assert_near(torch.linalg.inv(given), torch.linalg.inv(matrix), 10)
        sign, log = torch.linalg.slogdet(given)
        want = torch.linalg.slogdet(matrix)
        assert_near(sign, want.sign, 10)
        assert_near(log, want.logabsdet, 10)
    small = a / 3
    assert_near(torch.linalg.det(small.to("tpu")), torch.linalg.det(small), 100)
    factors = torch.linalg.lu_factor(there)
    for left in (True, False):
        for adjoint in (True, False):
            right = b if left else b.mT
            want = torch.linalg.lu_solve(*torch.linalg.lu_factor(a), right, left=left, adjoint=adjoint)
            assert_near(torch.linalg.lu_solve(*factors, right.to("tpu"), left=left, adjoint=adjoint), want, 10)


@by_dtype
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_systems(upper, left, unit, dtype):
    a, b = random(2, 1, 40, 40, dtype=dtype) / 40 + 2 * torch.eye(40, dtype=dtype), random(3, 40, 40, dtype=dtype)
    # What is on the other side is not read.
    a = a + torch.full_like(a, float("inf")).tril(-1) if upper else a + torch.full_like(a, float("inf")).triu(1)
    a = torch.where(a.isnan(), torch.zeros_like(a), a)
    want = torch.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit)
    assert_near(
        torch.linalg.solve_triangular(a.to("tpu"), b.to("tpu"), upper=upper, left=left, unitriangular=unit), want
    )


def test_a_zero_on_the_diagonal_divides():
    a, b = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[1.0], [1.0]])
    want = torch.linalg.solve_triangular(a, b, upper=False)
    assert torch.equal(torch.linalg.solve_triangular(a.to("tpu"), b.to("tpu"), upper=False).cpu(), want)


@by_dtype
@of_rectangles
def test_qr(m, n, batch, dtype):
    a = random(*batch, m, n, dtype=dtype)
    for mode in ("reduced", "complete"):
        q, r = torch.linalg.qr(a.to("tpu"), mode)
        assert_near(q @ r, a)
        assert_orthonormal_columns(q.cpu())
        assert_near(r, torch.linalg.qr(a, mode).R, 10)
    q, r = torch.linalg.qr(a.to("tpu"), "r")
    assert q.shape == (0,)
    assert_near(r, torch.linalg.qr(a, "r").R, 10)
    packed, tau = torch.geqrf(a.to("tpu"))
    want = torch.geqrf(a)
    assert_near(packed, want.a, 10)
    assert_near(tau, want.tau, 10)


@by_dtype
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_ormqr(left, transpose, dtype):
    packed, tau = torch.geqrf(random(6, 4, dtype=dtype))
    c = random(6, 5, dtype=dtype) if left else random(5, 6, dtype=dtype)
    want = torch.ormqr(packed, tau, c, left, transpose)
    assert_near(torch.ormqr(packed.to("tpu"), tau.to("tpu"), c.to("tpu"), left, transpose), want)


def spread_spectrum(n, dtype):
    """Hermitian, with equal, zero, negative and tiny eigenvalues."""
    q = torch.linalg.qr(random(n, n, dtype=dtype)).Q
    values = torch.tensor([1.0, 1.0, -1.0, 0.0, 0.0, 1e-4, 3.0, -2.0][:n], dtype=q.real.dtype)
    values = torch.cat([values, torch.linspace(-1, 1, n - len(values), dtype=values.dtype)])
    h = (q * values) @ q.mH
    return (h + h.mH) / 2


HERMITIAN = {
    "random": lambda n, dtype: (lambda a: a + a.mH)(random(n, n, dtype=dtype)),
    "spread": spread_spectrum,
    "zero": lambda n, dtype: torch.zeros(n, n, dtype=dtype),
    "identity": lambda n, dtype: torch.eye(n, dtype=dtype),
    "diagonal": lambda n, dtype: torch.diag(torch.arange(n) - 2.0).to(dtype),
    "huge": lambda n, dtype: 1e30 * torch.ones(n, n, dtype=dtype),
    "tiny": lambda n, dtype: 1e-30 * torch.ones(n, n, dtype=dtype),
}


@by_dtype
@pytest.mark.parametrize("kind", HERMITIAN)
@pytest.mark.parametrize("n", [1, 2, 5, 33])
def test_eigh(n, kind, dtype):
    h = HERMITIAN[kind](n, dtype)
    scale = 1 / h.abs().max().item() if kind in ("huge", "tiny") else 1.0
    for side in ("L", "U"):
        read = h.tril() if side == "L" else h.triu()
        values, vectors = (t.cpu() for t in torch.linalg.eigh(read.to("tpu"), UPLO=side))
        assert_near(values * scale, torch.linalg.eigvalsh(h) * scale, 4)
        assert_near(((vectors * values) @ vectors.mH) * scale, h * scale, 4)
        assert_orthonormal_columns(vectors)
    assert_near(torch.linalg.eigvalsh(h.to("tpu")) * scale, values * scale)


def low_rank(m, n, dtype):
    return random(m, 2, dtype=dtype) @ random(2, n, dtype=dtype)


RECTANGULAR = {
    "random": lambda m, n, dtype: random(m, n, dtype=dtype),
    "low rank": low_rank,
    "zero": lambda m, n, dtype: torch.zeros(m, n, dtype=dtype),
    "identity": lambda m, n, dtype: torch.eye(m, n, dtype=dtype),
    "huge": lambda m, n, dtype: 1e30 * random(m, n, dtype=dtype),
}


@by_dtype
@pytest.mark.parametrize("kind", RECTANGULAR)
@pytest.mark.parametrize("m, n", [(0, 3), (1, 1), (5, 3), (3, 5), (33, 33), (40, 33)])
def test_svd(m, n, kind, dtype):
    a = RECTANGULAR[kind](m, n, dtype)
    scale = 1e-30 if kind == "huge" else 1.0
    k = min(m, n)
    want = torch.linalg.svdvals(a)
    for full in (False, True):
        u, s, vh = (t.cpu() for t in torch.linalg.svd(a.to("tpu"), full_matrices=full))
        assert u.shape == (m, m if full else k) and vh.shape == (n if full else k, n)
        assert_near(s * scale, want * scale, 4)
        assert_near(((u[:, :k] * s) @ vh[:k]) * scale, a * scale, 4)
        assert_orthonormal_columns(u)
        assert_orthonormal_columns(vh.mH)
    assert_near(torch.linalg.svdvals(a.to("tpu")) * scale, want * scale, 4)


def test_batches_converge_each_by_itself():
    kinds = [HERMITIAN[k](12, torch.float64) for k in ("random", "spread", "zero", "identity", "diagonal")]
    h = torch.stack(kinds).reshape(5, 1, 12, 12)
    values, vectors = (t.cpu() for t in torch.linalg.eigh(h.to("tpu")))
    assert_near((vectors * values.unsqueeze(-2)) @ vectors.mH, h)
    u, s, vh = (t.cpu() for t in torch.linalg.svd(h.to("tpu")))
    assert_near((u * s.unsqueeze(-2)) @ vh, h)


@by_dtype
def test_matrix_exp(dtype):
    a = random(4, 6, 6, dtype=dtype) * torch.tensor([0.0, 1e-3, 1.0, 20.0]).reshape(4, 1, 1) / 6
    assert_near(torch.linalg.matrix_exp(a.to("tpu")), torch.linalg.matrix_exp(a), 20)


@by_dtype
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("batch, n", [((), 1), ((), 2), ((2,), 5), ((3,), 12)])
def test_ldl(batch, n, hermitian, dtype):
    a = random(*batch, n, n, dtype=dtype)
    a = a + (a.mH if hermitian else a.mT)
    if n == 5:  # asks for pairs of pivots
        a.diagonal(dim1=-2, dim2=-1).zero_()
    got = torch.linalg.ldl_factor_ex(a.to("tpu"), hermitian=hermitian)
    want = torch.linalg.ldl_factor_ex(a, hermitian=hermitian)
    assert torch.equal(got.pivots.cpu(), want.pivots) and torch.equal(got.info.cpu(), want.info)
    assert_near(got.LD, want.LD, 100)
    b = random(*batch, n, 2, dtype=dtype)
    x = torch.linalg.ldl_solve(got.LD, got.pivots, b.to("tpu"), hermitian=hermitian)
    assert_near(a @ x.cpu(), b, 300)


def test_info_names_the_first_minor_or_pivot_that_fails():
    h = torch.eye(40).repeat(3, 1, 1)
    h[1, 35, 35] = -1
    h[2, 3, 3] = float("nan")
    assert torch.linalg.cholesky_ex(h.to("tpu")).info.tolist() == [0, 36, 4]
    a = torch.eye(40).repeat(2, 1, 1)
    a[1, 34, 34] = 0
    assert torch.linalg.lu_factor_ex(a.to("tpu")).info.tolist() == [0, 35]
    assert torch.linalg.inv_ex(a.to("tpu")).info.tolist() == [0, 35]
    assert torch.linalg.ldl_factor_ex(torch.zeros(2, 2, device="tpu")).info.item() == 1


FAILING = {
    "cholesky": torch.linalg.cholesky,
    "cholesky_ex": lambda a: torch.linalg.cholesky_ex(a, check_errors=True),
    "torch.cholesky": torch.cholesky,
    "inv": torch.linalg.inv,
    "inv_ex": lambda a: torch.linalg.inv_ex(a, check_errors=True),
    "solve": lambda a: torch.linalg.solve(a, a),
    "solve_ex": lambda a: torch.linalg.solve_ex(a, a, check_errors=True),
    "lu_factor": torch.linalg.lu_factor,
    "lu_factor_ex": lambda a: torch.linalg.lu_factor_ex(a, check_errors=True),
    "not square": lambda a: torch.linalg.det(a[..., :1]),
    "torch.cholesky of what is not square": lambda a: torch.cholesky(a[..., :1]),
    "half": lambda a: torch.linalg.cholesky(a.half()),
    "bfloat16": lambda a: torch.linalg.svd(a.bfloat16()),
    "driver": lambda a: torch.linalg.svd(a, driver="gesvd"),
    "a vector": lambda a: torch.geqrf(a[..., 0].reshape(-1)),
    "svd of NaN": lambda a: torch.linalg.svdvals(a * float("nan")).cpu(),
}


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)], ids=str)
@pytest.mark.parametrize("name", FAILING)
def test_errors_as_on_cpu(name, shape):
    a = torch.zeros(shape)
    with pytest.raises(RuntimeError) as want:
        FAILING[name](a)
    with pytest.raises(RuntimeError) as got:
        FAILING[name](a.to("tpu"))
    assert type(got.value) is type(want.value) and str(got.value) == str(want.value)


def test_values_that_are_not_finite_are_errors_when_read():
    with pytest.raises(torch.linalg.LinAlgError, match=r"linalg\.eigh: The algorithm failed to converge"):
        torch.linalg.eigvalsh(torch.full((3, 3), float("nan"), device="tpu")).cpu()
    with pytest.raises(torch.linalg.LinAlgError, match="The diagonal element 2 is zero"):
        torch.cholesky_inverse(torch.tensor([[1.0, 0.0], [0.0, 0.0]], device="tpu")).cpu()


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("m, n", [(5, 3), (3, 5), (4, 4), (0, 3), (5, 0)])
def test_lstsq(m, n, driver):
    a, b = random(m, n, dtype=torch.float64), random(m, 2, dtype=torch.float64)
    forms = [(a, b), (a, b[:, 0]), (a.expand(2, m, n), b.expand(2, m, 2)), (a.expand(2, m, n), b[:, 0].expand(2, m))]
    for matrix, right in forms:
        got = torch.linalg.lstsq(matrix.to("tpu"), right.to("tpu"), driver=driver)
        want = torch.linalg.lstsq(matrix, right, driver=driver)
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(g.cpu(), w, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("driver", ["gelsy", "gelsd", "gelss"])
def test_lstsq_of_less_than_full_rank_is_the_smallest_solution(driver):
    a, b = low_rank(6, 4, torch.float64), random(6, 1, dtype=torch.float64)
    got = torch.linalg.lstsq(a.to("tpu"), b.to("tpu"), driver=driver)
    want = torch.linalg.lstsq(a, b, driver=driver)
    assert got.rank.item() == 2 and got.residuals.shape == want.residuals.shape
    torch.testing.assert_close(got.solution.cpu(), want.solution)
