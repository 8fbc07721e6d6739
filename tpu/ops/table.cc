#include "tpu/ops/table.h"

namespace tpu::ops {

const std::vector<Family>& table() {
  static const std::vector<Family> families = {
      {"elementwise", elementwise_rows()},
      {"math", math_rows()},
      {"polynomial", polynomial_rows()},
      {"fft", fft_rows()},
      {"bessel", bessel_rows()},
      {"special", special_rows()},
      {"activation", activation_rows()},
      {"compare", compare_rows()},
      {"reduce", reduce_rows()},
      {"scan", scan_rows()},
      {"segment", segment_rows()},
      {"matmul", matmul_rows()},
      {"shape", shape_rows()},
      {"pad", pad_rows()},
      {"resize", resize_rows()},
      {"index", index_rows()},
      {"scatter", scatter_rows()},
      {"sort", sort_rows()},
      {"create", create_rows()},
      {"conv", conv_rows()},
      {"pool", pool_rows()},
      {"norm", norm_rows()},
      {"batch_norm", batch_norm_rows()},
      {"distance", distance_rows()},
      {"loss", loss_rows()},
      {"attention", attention_rows()},
      {"random", random_rows()},
      {"distribution", distribution_rows()},
      {"optimizer", optimizer_rows()},
      {"rnn", rnn_rows()},
      {"copy", copy_rows()},
      {"grid sample", grid_sample_rows()},
      {"embedding bag", embedding_bag_rows()},
      {"margin loss", margin_loss_rows()},
      {"fractional pool", fractional_pool_rows()},
      {"ctc", ctc_rows()},
      {"cholesky", cholesky_rows()},
      {"ldl", ldl_rows()},
      {"lu", lu_rows()},
      {"qr", qr_rows()},
      {"spectral", spectral_rows()},
      {"matrix function", matrix_function_rows()},
  };
  return families;
}

}  // namespace tpu::ops
