// Which attention F.scaled_dot_product_attention takes: the row of attention.cc wherever it can.
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>

namespace tpu {
namespace {

// What the row computes: [batch, heads, length, width] of one floating dtype, heads of the keys
// shared by whole groups of queries. Anything else goes PyTorch's composite way.
bool is_fusable(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                const std::optional<at::Tensor>& mask, bool enable_gqa) {
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4 || !at::isFloatingType(query.scalar_type())) return false;
  if (key.scalar_type() != query.scalar_type() || value.scalar_type() != query.scalar_type()) return false;
  if (query.sym_numel() == 0 || key.sym_numel() == 0 || value.sym_numel() == 0) return false;
  if (query.sym_size(0) != key.sym_size(0) || query.sym_size(0) != value.sym_size(0)) return false;
  if (key.sym_size(1) != value.sym_size(1) || key.sym_size(2) != value.sym_size(2)) return false;
  if (query.sym_size(1) != key.sym_size(1) && (!enable_gqa || query.sym_size(1) % key.sym_size(1) != 0)) return false;
  if (!mask) return true;
  // A mask that is larger than the scores would broadcast them.
  const c10::SymInt scores[] = {query.sym_size(0), query.sym_size(1), query.sym_size(2), key.sym_size(2)};
  if (mask->dim() > 4) return false;
  for (int64_t d = 1; d <= mask->dim(); ++d) {
    if (mask->sym_size(-d) != 1 && mask->sym_size(-d) != scores[4 - d]) return false;
  }
  return true;
}

int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>& mask, double /*dropout_p*/, bool is_causal,
               std::optional<double> /*scale*/, bool enable_gqa) {
  const at::Context& context = at::globalContext();
  const bool fused =
      context.userEnabledOverrideableSDP() && !(mask && is_causal) && is_fusable(query, key, value, mask, enable_gqa);
  TORCH_CHECK(fused || context.userEnabledMathSDP(), "No available kernel. Aborting execution.");
  return static_cast<int64_t>(fused ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

}  // namespace
}  // namespace tpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &::tpu::choose)
}  // namespace at::native
