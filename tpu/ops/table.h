// THE op table: every row of every family. A reader finds an op by its ATen overload name.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tpu/ops/op.h"

namespace tpu::ops {

struct Family {
  std::string_view name;
  std::span<const Row> rows;
};

// One function per file of rows; listed here so that link order cannot drop one.
std::span<const Row> elementwise_rows();
std::span<const Row> math_rows();
std::span<const Row> polynomial_rows();
std::span<const Row> fft_rows();
std::span<const Row> bessel_rows();
std::span<const Row> special_rows();
std::span<const Row> activation_rows();
std::span<const Row> compare_rows();
std::span<const Row> reduce_rows();
std::span<const Row> scan_rows();
std::span<const Row> segment_rows();
std::span<const Row> matmul_rows();
std::span<const Row> shape_rows();
std::span<const Row> pad_rows();
std::span<const Row> resize_rows();
std::span<const Row> index_rows();
std::span<const Row> scatter_rows();
std::span<const Row> sort_rows();
std::span<const Row> create_rows();
std::span<const Row> conv_rows();
std::span<const Row> pool_rows();
std::span<const Row> norm_rows();
std::span<const Row> batch_norm_rows();
std::span<const Row> distance_rows();
std::span<const Row> loss_rows();
std::span<const Row> attention_rows();
std::span<const Row> random_rows();
std::span<const Row> distribution_rows();
std::span<const Row> optimizer_rows();
std::span<const Row> rnn_rows();
std::span<const Row> copy_rows();
std::span<const Row> grid_sample_rows();
std::span<const Row> embedding_bag_rows();
std::span<const Row> margin_loss_rows();
std::span<const Row> fractional_pool_rows();
std::span<const Row> ctc_rows();
std::span<const Row> cholesky_rows();
std::span<const Row> ldl_rows();
std::span<const Row> lu_rows();
std::span<const Row> qr_rows();
std::span<const Row> spectral_rows();
std::span<const Row> matrix_function_rows();

const std::vector<Family>& table();

}  // namespace tpu::ops
