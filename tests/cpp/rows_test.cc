// Rows of the op table with bounded operands: written once, they give what they give with fixed sizes.

#include <cstdlib>
#include <map>

#include "tests/cpp/bounded.h"
#include "tpu/ops/table.h"

namespace tpu::ops {
namespace {

using test::Array;
using test::fail;
using test::Shape;

// As little as rules ask of their caller: numbers are constants, checks are not looked at.
class TestContext final : public Context {
 public:
  explicit TestContext(ir::Builder& b) : builder_(b) {}
  ir::Builder& builder() override { return builder_; }
  Value scalar_operand(size_t, size_t, DType) override { throw std::logic_error("no argument is a run-time one here"); }
  std::pair<Value, Value> random_state(int64_t) override {
    return {ir::constant(builder_, 1, Type(DType::kUI64, {})), ir::constant(builder_, 0, Type(DType::kUI64, {}))};
  }
  DType promote(const std::vector<size_t>&) override { return DType::kF32; }
  void check(const Value&, const Value&, std::string, std::string) override {}
  std::string matmul_precision() override { return "HIGHEST"; }

 private:
  ir::Builder& builder_;
};

const Row& row(std::string_view name) {
  for (const Family& family : table()) {
    for (const Row& r : family.rows) {
      if (r.name == name) return r;
    }
  }
  throw std::logic_error("no row " + std::string(name));
}

// ---- arguments in schema order ----
Argument tensor(const char* name, int operand) {
  Argument a;
  a.name = name;
  a.kind = Argument::Kind::kTensor;
  a.numbers = {int64_t{operand}};  // put in by the call
  return a;
}
Argument tensors(const char* name, const std::vector<int>& operands) {
  Argument a;
  a.name = name;
  a.kind = Argument::Kind::kTensorList;
  for (int i : operands) a.numbers.push_back(int64_t{i});
  return a;
}
Argument number(const char* name, Number n) {
  Argument a;
  a.name = name;
  a.kind = Argument::Kind::kNumber;
  a.numbers = {n};
  return a;
}
Argument list(const char* name, const Dims& values) {
  Argument a;
  a.name = name;
  a.kind = Argument::Kind::kNumberList;
  for (int64_t v : values) a.numbers.push_back(v);
  return a;
}
Argument text(const char* name, const char* value) {
  Argument a;
  a.name = name;
  a.kind = Argument::Kind::kText;
  a.text = value;
  return a;
}
Argument none(const char* name) {
  Argument a;
  a.name = name;
  return a;
}

struct Case {
  const char* name;
  std::vector<Shape> operands;
  std::vector<Argument> arguments;
  std::vector<Shape> results;
};

constexpr DType kF = DType::kF32, kI = DType::kI64, kB = DType::kI1;
const Shape kRows{kF, {-1, 8}}, kPlane{kF, {-1, -2}}, kRow{kF, {8}}, kFlat{kF, {-1}};

// The calls, each with sizes that vary in one or two dimensions.
std::vector<Case> cases() {
  const int64_t one = 1;
  std::vector<Case> all = {
      {"add.Tensor", {kRows, kRows}, {tensor("self", 0), tensor("other", 1), number("alpha", one)}, {kRows}},
      {"add.Tensor", {kRows, kRow}, {tensor("self", 0), tensor("other", 1), number("alpha", int64_t{2})}, {kRows}},
      {"add.Tensor", {kRow, kRows}, {tensor("self", 0), tensor("other", 1), number("alpha", one)}, {kRows}},
      {"sub.Tensor", {kPlane, kPlane}, {tensor("self", 0), tensor("other", 1), number("alpha", one)}, {kPlane}},
      {"mul.Tensor", {kPlane, {kF, {-1, 1}}}, {tensor("self", 0), tensor("other", 1)}, {kPlane}},
      {"div.Tensor", {kPlane, {kF, {}}}, {tensor("self", 0), tensor("other", 1)}, {kPlane}},
      {"div.Tensor_mode",
       {kPlane, kPlane},
       {tensor("self", 0), tensor("other", 1), text("rounding_mode", "floor")},
       {kPlane}},
      {"maximum", {kPlane, kPlane}, {tensor("self", 0), tensor("other", 1)}, {kPlane}},
      {"where.self",
       {{kB, {-1, -2}}, kPlane, {kF, {}}},
       {tensor("condition", 0), tensor("self", 1), tensor("other", 2)},
       {kPlane}},
      {"masked_fill.Scalar",
       {kPlane, {kB, {-1, -2}}},
       {tensor("self", 0), tensor("mask", 1), number("value", 2.5)},
       {kPlane}},
      {"lt.Tensor", {kPlane, kPlane}, {tensor("self", 0), tensor("other", 1)}, {{kB, {-1, -2}}}},
      {"clamp", {kPlane}, {tensor("self", 0), number("min", -0.5), number("max", 0.5)}, {kPlane}},
      {"gelu", {kPlane}, {tensor("self", 0), text("approximate", "none")}, {kPlane}},
      {"gelu", {kPlane}, {tensor("self", 0), text("approximate", "tanh")}, {kPlane}},
      {"_softmax", {kPlane}, {tensor("self", 0), number("dim", int64_t{-1}), number("half_to_float", false)}, {kPlane}},
      {"_softmax", {kPlane}, {tensor("self", 0), number("dim", int64_t{0}), number("half_to_float", false)}, {kPlane}},
      {"_log_softmax", {kPlane}, {tensor("self", 0), number("dim", one), number("half_to_float", false)}, {kPlane}},
      {"_softmax_backward_data",
       {kPlane, kPlane},
       {tensor("grad_output", 0), tensor("output", 1), number("dim", one), number("input_dtype", false)},
       {kPlane}},
      {"sum.dim_IntList",
       {kPlane},
       {tensor("self", 0), list("dim", {0}), number("keepdim", true), none("dtype")},
       {{kF, {1, -2}}}},
      {"sum", {kPlane}, {tensor("self", 0), none("dtype")}, {{kF, {}}}},
      {"mean", {kPlane}, {tensor("self", 0), none("dtype")}, {{kF, {}}}},
      {"mean.dim", {kPlane}, {tensor("self", 0), list("dim", {-1}), number("keepdim", false), none("dtype")}, {kFlat}},
      {"mean.dim",
       {kPlane},
       {tensor("self", 0), list("dim", {0}), number("keepdim", true), none("dtype")},
       {{kF, {1, -2}}}},
      {"amax", {kPlane}, {tensor("self", 0), list("dim", {0}), number("keepdim", false)}, {{kF, {-2}}}},
      {"max.dim", {kPlane}, {tensor("self", 0), number("dim", one), number("keepdim", false)}, {kFlat, {kI, {-1}}}},
      {"argmin", {kPlane}, {tensor("self", 0), number("dim", int64_t{0}), number("keepdim", false)}, {{kI, {-2}}}},
      {"any.dim",
       {{kB, {-1, -2}}},
       {tensor("self", 0), number("dim", int64_t{0}), number("keepdim", false)},
       {{kB, {-2}}}},
      {"logsumexp", {kPlane}, {tensor("self", 0), list("dim", {0}), number("keepdim", false)}, {{kF, {-2}}}},
      {"var.correction",
       {kPlane},
       {tensor("self", 0), list("dim", {1}), number("correction", int64_t{0}), number("keepdim", false)},
       {kFlat}},
      {"linalg_vector_norm",
       {kPlane},
       {tensor("self", 0), number("ord", 2.0), none("dim"), number("keepdim", false), none("dtype")},
       {{kF, {}}}},
      {"cumsum", {kPlane}, {tensor("self", 0), number("dim", int64_t{0}), none("dtype")}, {kPlane}},
      {"native_layer_norm",
       {{kF, {-1, -2, 8}}, kRow, kRow},
       {tensor("input", 0), list("normalized_shape", {8}), tensor("weight", 1), tensor("bias", 2), number("eps", 1e-5)},
       {{kF, {-1, -2, 8}}, {kF, {-1, -2, 1}}, {kF, {-1, -2, 1}}}},
      {"native_layer_norm_backward",
       {kRows, kRows, {kF, {-1, 1}}, {kF, {-1, 1}}, kRow, kRow},
       {tensor("grad_out", 0), tensor("input", 1), list("normalized_shape", {8}), tensor("mean", 2), tensor("rstd", 3),
        tensor("weight", 4), tensor("bias", 5), list("output_mask", {1, 1, 1})},
       {kRows, kRow, kRow}},
      {"native_group_norm",
       {{kF, {-1, 4, 5}}, {kF, {4}}, {kF, {4}}},
       {tensor("input", 0), tensor("weight", 1), tensor("bias", 2), number("N", one), number("C", int64_t{4}),
        number("HxW", int64_t{5}), number("group", int64_t{2}), number("eps", 1e-5)},
       {{kF, {-1, 4, 5}}, {kF, {-1, 2}}, {kF, {-1, 2}}}},
      {"mm", {kRows, {kF, {8, -2}}}, {tensor("self", 0), tensor("mat2", 1)}, {kPlane}},
      {"mm", {{kF, {4, -1}}, {kF, {-1, 3}}}, {tensor("self", 0), tensor("mat2", 1)}, {{kF, {4, 3}}}},
      {"bmm", {{kF, {-1, 3, 4}}, {kF, {-1, 4, -2}}}, {tensor("self", 0), tensor("mat2", 1)}, {{kF, {-1, 3, -2}}}},
      {"addmm",
       {{kF, {4}}, kRows, {kF, {8, 4}}},
       {tensor("self", 0), tensor("mat1", 1), tensor("mat2", 2), number("beta", one), number("alpha", one)},
       {{kF, {-1, 4}}}},
      {"cat", {kRows, {kF, {-2, 8}}, {kF, {3, 8}}}, {tensors("tensors", {0, 1, 2}), number("dim", int64_t{0})}, {}},
      {"cat", {kRows, kRows}, {tensors("tensors", {0, 1}), number("dim", one)}, {{kF, {-1, 16}}}},
      {"stack", {kPlane, kPlane}, {tensors("tensors", {0, 1}), number("dim", one)}, {{kF, {-1, 2, -2}}}},
      {"flip", {kPlane}, {tensor("self", 0), list("dims", {0})}, {kPlane}},
      {"tril", {kPlane}, {tensor("self", 0), number("diagonal", int64_t{0})}, {kPlane}},
      {"constant_pad_nd", {kRows}, {tensor("self", 0), list("pad", {1, 2}), number("value", 0.5)}, {{kF, {-1, 11}}}},
      {"index_select",
       {{kF, {20, -2}}, {kI, {-1}}},
       {tensor("self", 0), number("dim", int64_t{0}), tensor("index", 1)},
       {kPlane}},
      {"embedding",
       {{kF, {20, 6}}, {kI, {-1, -2}}},
       {tensor("weight", 0), tensor("indices", 1), number("padding_idx", int64_t{-1}),
        number("scale_grad_by_freq", false), number("sparse", false)},
       {{kF, {-1, -2, 6}}}},
      {"embedding_dense_backward",
       {{kF, {-1, 6}}, {kI, {-1}}},
       {tensor("grad_output", 0), tensor("indices", 1), number("num_weights", int64_t{20}),
        number("padding_idx", int64_t{-1}), number("scale_grad_by_freq", false)},
       {{kF, {20, 6}}}},
      {"gather",
       {{kF, {-1, 20}}, {kI, {-1, 3}}},
       {tensor("self", 0), number("dim", one), tensor("index", 1), number("sparse_grad", false)},
       {{kF, {-1, 3}}}},
      {"scatter_add",
       {{kF, {20}}, {kI, {-1}}, kFlat},
       {tensor("self", 0), number("dim", int64_t{0}), tensor("index", 1), tensor("src", 2)},
       {{kF, {20}}}},
      {"sort.stable",
       {kPlane},
       {tensor("self", 0), number("stable", true), number("dim", int64_t{0}), number("descending", false)},
       {kPlane, {kI, {-1, -2}}}},
      {"sort.stable",
       {kPlane},
       {tensor("self", 0), number("stable", true), number("dim", one), number("descending", true)},
       {kPlane, {kI, {-1, -2}}}},
      {"topk",
       {kRows},
       {tensor("self", 0), number("k", int64_t{3}), number("dim", one), number("largest", true),
        number("sorted", true)},
       {{kF, {-1, 3}}, {kI, {-1, 3}}}},
      {"mse_loss", {kRows, kRows}, {tensor("self", 0), tensor("target", 1), number("reduction", one)}, {{kF, {}}}},
      {"mse_loss_backward",
       {{kF, {}}, kRows, kRows},
       {tensor("grad_output", 0), tensor("self", 1), tensor("target", 2), number("reduction", one)},
       {kRows}},
      {"nll_loss_forward",
       {{kF, {-1, 20}}, {kI, {-1}}},
       {tensor("self", 0), tensor("target", 1), none("weight"), number("reduction", one),
        number("ignore_index", int64_t{-100})},
       {{kF, {}}, {kF, {}}}},
      {"nll_loss_backward",
       {{kF, {}}, {kF, {-1, 20}}, {kI, {-1}}, {kF, {}}},
       {tensor("grad_output", 0), tensor("self", 1), tensor("target", 2), none("weight"), number("reduction", one),
        number("ignore_index", int64_t{-100}), tensor("total_weight", 3)},
       {{kF, {-1, 20}}}},
      {"max_pool2d_with_indices",
       {{kF, {-1, 2, 6, 6}}},
       {tensor("self", 0), list("kernel_size", {2, 2}), list("stride", {2, 2}), list("padding", {0, 0}),
        list("dilation", {1, 1}), number("ceil_mode", false)},
       {{kF, {-1, 2, 3, 3}}, {kI, {-1, 2, 3, 3}}}},
      {"convolution_overrideable",
       {{kF, {-1, 2, 6, 6}}, {kF, {3, 2, 3, 3}}, {kF, {3}}},
       {tensor("input", 0), tensor("weight", 1), tensor("bias", 2), list("stride", {1, 1}), list("padding", {1, 1}),
        list("dilation", {1, 1}), number("transposed", false), list("output_padding", {0, 0}), number("groups", one)},
       {{kF, {-1, 3, 6, 6}}}},
      {"_native_batch_norm_legit_functional",
       {{kF, {-1, 4}}, {kF, {4}}, {kF, {4}}, {kF, {4}}, {kF, {4}}},
       {tensor("input", 0), tensor("weight", 1), tensor("bias", 2), tensor("running_mean", 3), tensor("running_var", 4),
        number("training", true), number("momentum", 0.1), number("eps", 1e-5)},
       {{kF, {-1, 4}}, {kF, {4}}, {kF, {4}}, {kF, {4}}, {kF, {4}}}},
      {"native_batch_norm",
       {{kF, {-1, 4, 3}}, {kF, {4}}, {kF, {4}}, {kF, {4}}, {kF, {4}}},
       {tensor("input", 0), tensor("weight", 1), tensor("bias", 2), tensor("running_mean", 3), tensor("running_var", 4),
        number("training", true), number("momentum", 0.1), number("eps", 1e-5)},
       {{kF, {-1, 4, 3}}, {kF, {4}}, {kF, {4}}}},
  };
  for (const char* name : {"abs", "neg", "exp", "log1p", "sqrt", "rsqrt", "sigmoid", "tanh", "sin", "erf", "relu",
                           "silu", "round", "sign", "isnan", "reciprocal"}) {
    const bool predicate = std::string_view(name) == "isnan";
    all.push_back({name, {kPlane}, {tensor("self", 0)}, {{predicate ? kB : kF, {-1, -2}}}});
  }
  return all;
}

// Numbers that are indices where the operand is an integer: all below 20.
Array fill(size_t operand, const Type& type) {
  Array a = test::numbers(operand, type);
  for (int64_t i = 0; type.dtype() == kI && i < a.numel(); ++i) a.set<int64_t>(i, a.at<int64_t>(i) % 20);
  return a;
}

// Calls that are compiled for each size.
const std::vector<std::string_view> kFixedOnly = {"convolution_overrideable"};

void rows_give_the_same_with_bounds() {
  std::map<std::string_view, int> fixed;
  for (const Case& c : cases()) {
    const Row& r = row(c.name);
    const test::Rule rule = [&](ir::Builder& b, const Values& operands) {
      TestContext context(b);
      std::vector<Argument> arguments = c.arguments;
      for (Argument& a : arguments) {
        if (a.kind == Argument::Kind::kTensor) a.tensor = operands.at(as_int(a.numbers[0]));
        for (size_t i = 0; a.kind == Argument::Kind::kTensorList && i < a.numbers.size(); ++i)
          a.tensors.push_back(operands.at(as_int(a.numbers[i])));
      }
      // The result's type, as the caller finds it: the sizes of the operands where they are marked alike.
      std::map<int64_t, int64_t> sizes;
      bool bounded = false;
      for (size_t i = 0; i < operands.size(); ++i) {
        for (size_t d = 0; d < c.operands[i].dims.size(); ++d) {
          if (c.operands[i].dims[d] < 0) sizes[c.operands[i].dims[d]] = operands[i].type().bound(d);
        }
        bounded = bounded || !operands[i].type().is_static();
      }
      std::vector<Type> types;
      for (const Shape& s : c.results) {
        Type t(s.dtype, s.dims);
        Dims bounds = s.dims;
        for (int64_t& d : bounds) d = d < 0 ? sizes.at(d) : d;
        t = Type(s.dtype, bounds);
        for (size_t d = 0; d < bounds.size() && bounded; ++d) t.set_dynamic(d, s.dims[d] < 0);
        types.push_back(t);
      }
      if (c.results.empty()) {  // cat along a bounded dimension
        int64_t n = 0;
        for (const Value& v : operands) n += v.type().bound(0);
        Type t(kF, {n, 8});
        t.set_dynamic(0, bounded);
        types.push_back(t);
      }
      Op op(c.name, arguments, types, context);
      const Values results = r.rule.run(op);
      Values given;
      for (size_t i = 0; i < results.size(); ++i) {
        if (!results[i]) continue;
        // The caller converts; shapes are the rule's duty.
        given.push_back(i < types.size() ? ir::convert(results[i], types[i].dtype()) : results[i]);
        if (i < types.size() && results[i].type().bounds() != types[i].bounds())
          fail(std::string(c.name) + " returned " + results[i].type().text() + ", not " + types[i].text());
      }
      return given;
    };
    try {
      test::both(c.name, c.operands, rule, fill, 2e-5);
    } catch (const ir::StaticShapeRequired& e) {
      ++fixed[c.name];
      bool known = false;
      for (std::string_view name : kFixedOnly) known = known || name == c.name;
      if (!known) fail(std::string(c.name) + " needs fixed sizes: " + e.what());
    } catch (const std::exception& e) {
      fail(std::string(c.name) + " threw " + e.what());
    }
  }
  for (std::string_view name : kFixedOnly) {
    if (!fixed.count(name)) fail(std::string(name) + " no longer needs fixed sizes: take it off the list");
  }
}

}  // namespace
}  // namespace tpu::ops

int main(int argc, char** argv) {
  if (!std::getenv("TORCH_TPU_PLUGIN")) return std::puts("skipped: TORCH_TPU_PLUGIN is not set"), 77;
  return tpu::test::run_all({{"rows_give_the_same_with_bounds", tpu::ops::rows_give_the_same_with_bounds}}, argc, argv);
}
