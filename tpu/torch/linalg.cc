// Linear algebra whose course or result sizes depend on the data: errors that are read from `info`, and least squares.
#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/_linalg_svd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <limits>

#include "tpu/torch/prepare.h"

namespace tpu {
namespace {

// `check_errors` is the last argument and `info` the last result: where errors are asked for, the op runs without, and
// info is read.
template <size_t kArguments>
bool check_info(torch::jit::Stack* stack, const char* op, const char* api) {
  c10::IValue& check_errors = (*stack)[stack->size() - 1];
  if (!check_errors.toBool()) return false;
  const bool is_matrix = (*stack)[stack->size() - kArguments].toTensor().dim() == 2;
  check_errors = false;
  c10::Dispatcher::singleton().findSchemaOrThrow(op, "").callBoxed(stack);
  at::_linalg_check_errors(stack->back().toTensor(), api, is_matrix);
  return true;
}

}  // namespace

const std::map<std::string, Prepare>& info_checks() {
  static const std::map<std::string, Prepare> table = {
      {"aten::linalg_cholesky_ex",
       [](torch::jit::Stack* s) { return check_info<3>(s, "aten::linalg_cholesky_ex", "linalg.cholesky_ex"); }},
      {"aten::linalg_lu_factor_ex",
       [](torch::jit::Stack* s) { return check_info<3>(s, "aten::linalg_lu_factor_ex", "torch.linalg.lu_factor_ex"); }},
      {"aten::linalg_inv_ex",
       [](torch::jit::Stack* s) { return check_info<2>(s, "aten::linalg_inv_ex", "linalg.inv_ex"); }},
      {"aten::_linalg_solve_ex",
       [](torch::jit::Stack* s) { return check_info<4>(s, "aten::_linalg_solve_ex", "torch.linalg.solve_ex"); }},
      {"aten::linalg_ldl_factor_ex",
       [](torch::jit::Stack* s) {
         return check_info<3>(s, "aten::linalg_ldl_factor_ex", "torch.linalg.ldl_factor_ex");
       }},
  };
  return table;
}

namespace {

at::Tensor cholesky(const at::Tensor& self, bool upper) {
  if (self.numel() == 0) return at::empty_like(self, at::MemoryFormat::Contiguous);
  TORCH_CHECK(self.dim() >= 2, "cholesky: The input tensor A must have at least 2 dimensions.");
  TORCH_CHECK(self.size(-1) == self.size(-2), "cholesky: A must be batches of square matrices, but they are ",
              self.size(-2), " by ", self.size(-1), " matrices");
  const auto [factor, info] = at::linalg_cholesky_ex(self, upper);
  at::_linalg_check_errors(info, "cholesky", self.dim() == 2);
  return factor;
}

at::Tensor& cholesky_out(const at::Tensor& self, bool upper, at::Tensor& out) {
  const at::Tensor r = tpu::cholesky(self, upper);
  TORCH_CHECK(out.scalar_type() == r.scalar_type(), "Expected out tensor to have dtype ", r.dtype(), ", but got ",
              out.dtype(), " instead");
  at::native::resize_output(out, r.sizes());
  return out.copy_(r);
}

double epsilon(at::ScalarType type) {
  return c10::toRealValueType(type) == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                   : std::numeric_limits<float>::epsilon();
}

using LeastSquares = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// LAPACK's four drivers find the same solution where the matrix has full rank; all but gels the one of least norm
// elsewhere. gels goes by QR, the others by singular values.
LeastSquares lstsq(const at::Tensor& input, const at::Tensor& other, std::optional<double> rcond,
                   std::optional<std::string_view> driver_name) {
  TORCH_CHECK(input.dim() >= 2, "torch.linalg.lstsq: input must have at least 2 dimensions.");
  TORCH_CHECK(other.dim() >= 1, "torch.linalg.lstsq: other must have at least 1 dimension.");
  TORCH_CHECK(input.scalar_type() == other.scalar_type(),
              "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype ",
              input.scalar_type(), " and other's dtype ", other.scalar_type());
  const at::ScalarType real_type = c10::toRealValueType(input.scalar_type());
  TORCH_CHECK(real_type == at::kFloat || real_type == at::kDouble,
              "This function doesn't handle types other than float and double");
  const int64_t extra = input.dim() - other.dim();
  TORCH_CHECK(extra >= 0 && extra <= 1,
              "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) "
              "<= 1");
  const std::string driver(driver_name.value_or("gelsy"));
  TORCH_CHECK(driver == "gels" || driver == "gelsy" || driver == "gelsd" || driver == "gelss",
              "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  const bool is_vector = extra == 1 && input.sizes().slice(0, other.dim()) == other.sizes();
  const at::Tensor b = is_vector ? other.unsqueeze(-1) : other;
  TORCH_CHECK(input.size(-2) == b.size(-2), is_vector
                                                ? "torch.linalg.lstsq: input.size(-2) should match other.size(-1)"
                                                : "torch.linalg.lstsq: input.size(-2) should match other.size(-2)");
  const int64_t m = input.size(-2), n = input.size(-1), k = std::min(m, n);
  const auto batch = at::infer_size_dimvector(input.sizes().slice(0, input.dim() - 2), b.sizes().slice(0, b.dim() - 2));
  const auto of = [&](at::ArrayRef<int64_t> tail) {
    std::vector<int64_t> sizes(batch.begin(), batch.end());
    sizes.insert(sizes.end(), tail.begin(), tail.end());
    return sizes;
  };
  const at::Tensor a = input.expand(of({m, n})), right = b.expand(of({m, b.size(-1)}));
  const at::TensorOptions real = input.options().dtype(c10::toRealValueType(input.scalar_type()));
  at::Tensor rank = at::empty({0}, input.options().dtype(at::kLong)), singular = at::empty({0}, real);
  at::Tensor solution, residuals = at::empty({0}, real);
  const bool is_empty = a.numel() == 0 || right.numel() == 0;
  if (driver == "gels") {
    if (is_empty) {
      solution = at::zeros(of({n, b.size(-1)}), input.options());
    } else if (m >= n) {
      const auto [q, r] = at::linalg_qr(a, "reduced");
      solution = at::linalg_solve_triangular(r, at::matmul(q.mH(), right), /*upper=*/true);
    } else {
      const auto [q, r] = at::linalg_qr(a.mH(), "reduced");
      solution = at::matmul(q, at::linalg_solve_triangular(r.mH(), right, /*upper=*/false));
    }
  } else {
    at::Tensor s = at::zeros(of({k}), real);
    rank = at::zeros(batch, input.options().dtype(at::kLong));
    solution = at::zeros(of({n, b.size(-1)}), input.options());
    if (a.numel() > 0) {
      const double cutoff = rcond.value_or(-1) < 0 ? epsilon(input.scalar_type()) * std::max(m, n) : *rcond;
      const auto [u, values, vh] = at::_linalg_svd(a, /*full_matrices=*/false);
      s = values;
      const at::Tensor counts = s.gt(s.amax(-1, /*keepdim=*/true).mul(cutoff));
      rank = counts.sum(-1);
      const at::Tensor inverse = at::where(counts, s.reciprocal(), 0).to(input.scalar_type());
      solution = at::matmul(vh.mH(), inverse.unsqueeze(-1).mul(at::matmul(u.mH(), right)));
    }
    if (driver != "gelsy") singular = s;
  }
  if (m > n && driver != "gelsy" && (driver == "gels" || rank.eq(n).all().item<bool>())) {
    const at::Tensor rest = at::matmul(a, solution).sub(right).abs();
    residuals = rest.mul(rest).sum(-2);
    // LAPACK's gels sets the right side to zero where there are no unknowns.
    if (driver == "gels" && is_empty) residuals.zero_();
  }
  return {is_vector ? solution.squeeze(-1) : solution, residuals, rank, singular};
}

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&> lstsq_out(
    const at::Tensor& input, const at::Tensor& other, std::optional<double> rcond,
    std::optional<std::string_view> driver, at::Tensor& solution, at::Tensor& residuals, at::Tensor& rank,
    at::Tensor& singular_values) {
  const auto [x, r, n, s] = tpu::lstsq(input, other, rcond, driver);
  const auto put = [](at::Tensor& out, const at::Tensor& value) {
    at::native::resize_output(out, value.sizes());
    out.copy_(value);
  };
  put(solution, x);
  put(residuals, r);
  put(rank, n);
  put(singular_values, s);
  return {solution, residuals, rank, singular_values};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cholesky", TORCH_FN(cholesky));
  m.impl("cholesky.out", TORCH_FN(cholesky_out));
  m.impl("linalg_lstsq", TORCH_FN(lstsq));
  m.impl("linalg_lstsq.out", TORCH_FN(lstsq_out));
}

}  // namespace tpu
