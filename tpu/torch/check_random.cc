// What samplers demand of their numbers, on every call: these are run-time operands, so a program
// that is known already does not look at them.
#include <ATen/core/Tensor.h>

#include <limits>

#include "tpu/torch/prepare.h"

namespace tpu {
namespace {

const c10::IValue& argument(torch::jit::Stack* stack, size_t count, size_t i) {
  return (*stack)[stack->size() - count + i];
}

// self, from, to, generator
bool check_uniform(torch::jit::Stack* stack) {
  const double from = argument(stack, 4, 1).toDouble(), to = argument(stack, 4, 2).toDouble();
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
  return false;
}

// self, mean, std, generator
bool check_normal(torch::jit::Stack* stack) {
  const double std = argument(stack, 4, 2).toDouble();
  TORCH_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std);
  return false;
}

// mean, std, generator
bool check_normal_of_tensor(torch::jit::Stack* stack) {
  const double std = argument(stack, 3, 1).toDouble();
  TORCH_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std);
  return false;
}

bool check_log_normal(torch::jit::Stack* stack) {
  const double std = argument(stack, 4, 2).toDouble();
  TORCH_CHECK(std > 0, "log_normal_ expects std > 0.0, but found std=", std);
  return false;
}

bool check_cauchy(torch::jit::Stack* stack) {
  const double sigma = argument(stack, 4, 2).toDouble();
  TORCH_CHECK(sigma > 0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  return false;
}

// self, lambd, generator
bool check_exponential(torch::jit::Stack* stack) {
  const double lambda = argument(stack, 3, 1).toDouble();
  TORCH_CHECK(lambda > 0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
  return false;
}

// self, p, generator
bool check_geometric(torch::jit::Stack* stack) {
  const double p = argument(stack, 3, 1).toDouble();
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  return false;
}

bool check_bernoulli(torch::jit::Stack* stack) {
  const double p = argument(stack, 3, 1).toDouble();
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  return false;
}

// input, p, train
bool check_dropout(torch::jit::Stack* stack) {
  const double p = argument(stack, 3, 1).toDouble();
  TORCH_CHECK(0 <= p && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  return false;
}

// The integers that the dtype holds, as far as int64 goes; floats up to where they skip integers.
std::pair<int64_t, int64_t> integers_of(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return {0, 1};
    case at::kByte:
      return {0, 255};
    case at::kChar:
      return {-128, 127};
    case at::kShort:
      return {std::numeric_limits<int16_t>::min(), std::numeric_limits<int16_t>::max()};
    case at::kInt:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case at::kHalf:
      return {-65504, 65504};
    default:
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  }
}

void check_range(const at::Tensor& self, int64_t from, int64_t to) {
  TORCH_CHECK(from < to, "random_ expects 'from' to be less than 'to', but got from=", from, " >= to=", to);
  const auto [low, high] = integers_of(self.scalar_type());
  TORCH_CHECK(low <= from && from <= high, "from is out of bounds for ", self.dtype());
  TORCH_CHECK(low <= to - 1 && to - 1 <= high, "to - 1 is out of bounds for ", self.dtype());
}

// self, from, to, generator
bool check_random_from(torch::jit::Stack* stack) {
  const c10::IValue& to = argument(stack, 4, 2);
  if (!to.isNone()) check_range(argument(stack, 4, 0).toTensor(), argument(stack, 4, 1).toInt(), to.toInt());
  return false;
}

// self, to, generator
bool check_random_to(torch::jit::Stack* stack) {
  check_range(argument(stack, 3, 0).toTensor(), 0, argument(stack, 3, 1).toInt());
  return false;
}

}  // namespace

const std::map<std::string, Prepare>& random_checks() {
  static const std::map<std::string, Prepare> table = {
      {"aten::uniform_", &check_uniform},
      {"aten::normal_", &check_normal},
      {"aten::normal.Tensor_float", &check_normal_of_tensor},
      {"aten::log_normal_", &check_log_normal},
      {"aten::cauchy_", &check_cauchy},
      {"aten::exponential_", &check_exponential},
      {"aten::geometric_", &check_geometric},
      {"aten::bernoulli.p", &check_bernoulli},
      {"aten::bernoulli_.float", &check_bernoulli},
      {"aten::native_dropout", &check_dropout},
      {"aten::random_.from", &check_random_from},
      {"aten::random_.to", &check_random_to},
  };
  return table;
}

}  // namespace tpu
