// The fast path of nn.TransformerEncoderLayer and nn.MultiheadAttention in inference, made of ops that have rows.
// PyTorch takes it for this device, and its own attention kernel computes on the CPU.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_native.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

namespace tpu {
namespace {

// [batch, length, 3 * width] of the packed projection, for three inputs that may be the same.
std::vector<at::Tensor> project(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                const at::Tensor& weight, const at::Tensor& bias) {
  if (query.is_same(key) && key.is_same(value)) return at::linear(query, weight, bias).chunk(3, -1);
  const auto w = weight.chunk(3, 0), b = bias.chunk(3, 0);
  return {at::linear(query, w[0], b[0]), at::linear(key, w[1], b[1]), at::linear(value, w[2], b[2])};
}

// What is not zero masks out, -inf as well. By its type the mask is [length, keys], [batch, keys] or broadcasts to the
// scores.
at::Tensor over_scores(const at::Tensor& mask, std::optional<int64_t> type) {
  const at::Tensor out = mask.to(at::kBool);
  return type.value_or(2) == 1 ? out.view({mask.size(0), 1, 1, mask.size(-1)}) : out;
}

std::tuple<at::Tensor, at::Tensor> multi_head_attention(const at::Tensor& query, const at::Tensor& key,
                                                        const at::Tensor& value, int64_t embed_dim, int64_t num_head,
                                                        const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
                                                        const at::Tensor& proj_weight, const at::Tensor& proj_bias,
                                                        const std::optional<at::Tensor>& mask, bool need_weights,
                                                        bool average_attn_weights, std::optional<int64_t> mask_type) {
  TORCH_CHECK(query.dim() == 3, "expected 3-D `query`, got ", query.dim(), "-D tensor");
  TORCH_CHECK(query.size(2) == embed_dim, "passed-in embed_dim ", embed_dim, " didn't match last dim of query ",
              query.size(2));
  TORCH_CHECK(embed_dim % num_head == 0, "`embed_dim` must divide evenly by `num_heads`");
  std::vector<at::Tensor> heads = project(query, key, value, qkv_weight, qkv_bias);
  for (at::Tensor& t : heads) t = t.view({t.size(0), t.size(1), num_head, embed_dim / num_head}).transpose(1, 2);
  at::Tensor attended, weights;
  if (mask || need_weights) {
    const double scale = 1 / std::sqrt(static_cast<double>(embed_dim / num_head));
    at::Tensor scores = at::matmul(heads[0].mul(scale), heads[1].transpose(2, 3));
    // A row without any key is NaN, as on the CPU.
    if (mask) scores = scores.masked_fill(over_scores(*mask, mask_type), -std::numeric_limits<double>::infinity());
    weights = at::softmax(scores, -1);
    attended = at::matmul(weights, heads[2]);
  } else {
    attended = at::scaled_dot_product_attention(heads[0], heads[1], heads[2]);
  }
  attended = attended.transpose(1, 2).reshape({query.size(0), query.size(1), embed_dim});
  if (!need_weights) return {at::linear(attended, proj_weight, proj_bias), at::Tensor()};
  return {at::linear(attended, proj_weight, proj_bias), average_attn_weights ? weights.mean(1) : weights};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_native_multi_head_attention", TORCH_FN(multi_head_attention));
  m.impl("_transformer_encoder_layer_fwd", TORCH_FN(at::native::transformer_encoder_layer_forward));
}

}  // namespace tpu
