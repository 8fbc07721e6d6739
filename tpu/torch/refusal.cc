#include "tpu/torch/refusal.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>

#include <set>

namespace tpu {
namespace {

// The operands of a call as CPU tensors of the same geometry, all of whose elements are `fill`. Tensors that share
// a storage share one here, too, and one given twice is the same tensor: the CPU looks at both.
class StandIns {
 public:
  StandIns(int64_t fill, int64_t max_bytes) : fill_(fill), left_(max_bytes) {}

  // False where the operands are larger than the limit.
  bool fits() const { return left_ >= 0; }

  c10::IValue of(const c10::IValue& v) {
    if (v.isTensor()) return of(v.toTensor());
    if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(of(t));
      return list;
    }
    if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& t : v.toOptionalTensorVector())
        list.push_back(t ? std::optional(of(*t)) : t);
      return list;
    }
    if (v.isDevice()) return c10::Device(at::kCPU);
    if (v.isGenerator()) return {};
    return v;
  }

 private:
  at::Tensor of(const at::Tensor& t) {
    if (!t.defined() || t.is_cpu() || !fits()) return t;
    for (const auto& [given, made] : made_) {
      if (given.is_same(t)) return made;
    }
    made_.emplace_back(t, make(t));
    return made_.back().second;
  }

  at::Tensor make(const at::Tensor& t) {
    const auto sizes = t.sizes(), strides = t.strides();
    const auto whole = static_cast<int64_t>(t.unsafeGetTensorImpl()->unsafe_storage().nbytes());
    const auto options = t.options().device(at::kCPU).requires_grad(false);
    at::Tensor c;
    if (whole <= left_) {
      const c10::Storage storage = storage_of(t, whole);
      c = at::empty({0}, options);
      c.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
      c.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, t.storage_offset());
    } else {
      // A small window of a large storage.
      left_ -= static_cast<int64_t>(at::detail::computeStorageNbytes(sizes, strides, t.element_size()));
      if (!fits()) return t;
      c = at::empty_strided(sizes, strides, options);
      fill(c.storage(), t.scalar_type());
    }
    c._set_conj(t.is_conj());
    c._set_neg(t.is_neg());
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) c.unsafeGetTensorImpl()->set_wrapped_number(true);
    return c;
  }

  c10::Storage storage_of(const at::Tensor& t, int64_t bytes) {
    for (const auto& [given, made] : storages_) {
      if (given == t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()) return made;
    }
    left_ -= bytes;
    const at::Tensor memory = at::empty({bytes}, at::TensorOptions().dtype(at::kByte));
    fill(memory.storage(), t.scalar_type());
    storages_.emplace_back(t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl(), memory.storage());
    return memory.storage();
  }

  void fill(const c10::Storage& storage, c10::ScalarType dtype) {
    std::memset(storage.mutable_data(), 0, storage.nbytes());
    const size_t size = c10::elementSize(dtype);
    if (fill_ == 0 || storage.nbytes() < size) return;
    const auto n = static_cast<int64_t>(storage.nbytes() / size);
    static constexpr int64_t kOne = 1;
    at::Tensor all = at::empty({0}, at::TensorOptions().dtype(dtype));
    all.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
    all.unsafeGetTensorImpl()->set_sizes_and_strides(c10::IntArrayRef(n), c10::IntArrayRef(kOne), 0);
    all.fill_(fill_);
  }

  int64_t fill_, left_;
  std::vector<std::pair<at::Tensor, at::Tensor>> made_;
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> storages_;
};

class Silence final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

// What PyTorch calls of other backends only, by the name that the CPU has for it.
const c10::OperatorHandle& name_on_cpu(const c10::OperatorHandle& op) {
  static const c10::OperatorHandle convolution =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  return op.operator_name().name == "aten::convolution_overrideable" ? convolution : op;
}

// Calls the CPU's kernel; false where the operands are too large.
bool call_on_cpu(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args, int64_t fill, int64_t max_bytes) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::DisableRecordFunctionGuard not_profiled;
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard no_warnings(&silence);
  StandIns stand_ins(fill, max_bytes);
  torch::jit::Stack stack;
  for (const c10::IValue& v : args) stack.push_back(stand_ins.of(v));
  if (!stand_ins.fits()) return false;
  name_on_cpu(op).callBoxed(stack);
  return true;
}

// Only a matter of what the CPU has kernels of; of its usual dtypes it has those that make sense.
bool is_lack_of_a_kernel(const std::exception& e) {
  const std::string text = e.what();
  if (text.find("Could not run '") != text.npos) return true;
  if (text.find("not implemented for '") == text.npos) return false;
  for (const char* dtype :
       {"'Half'", "'BFloat16'", "'Float8", "'Float4", "'ComplexHalf'", "'UInt16'", "'UInt32'", "'UInt64'"}) {
    if (text.find(dtype) != text.npos) return true;
  }
  return false;
}

// Text up to the numbers that the elements put in.
std::string first_line(const std::exception& e) {
  const auto* known = dynamic_cast<const c10::Error*>(&e);
  const std::string text = known ? known->what_without_backtrace() : e.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

void refuse_as_the_cpu_does(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args) {
  constexpr int64_t kMaxBytes = 64 << 20;
  if (op.operator_name().name == "aten::convolution_backward_overrideable") return;
  call_on_cpu(op, args, 0, kMaxBytes);
}

void check_with_the_cpu(const OpEntry& entry, c10::ArrayRef<c10::IValue> args, int64_t result_bytes) {
  // A kernel of this size takes less time than the compile that follows.
  constexpr int64_t kMaxBytes = 4 << 20;
  // Not an op of the CPU; or how elements of two operands fit together decides, which stand-ins do not show.
  static const std::set<std::string> skipped = {"aten::_scaled_dot_product_fused_attention_overrideable",
                                                "aten::segment_reduce", "aten::repeat_interleave.Tensor"};
  // Autograd makes no wrong calls, and the CPU saves other things for its backward kernels (16-bit statistics).
  const bool is_backward = entry.name.find("_backward") != std::string::npos;
  if (result_bytes > kMaxBytes || is_backward || entry.op.hasTag(at::Tag::nondeterministic_seeded) ||
      (entry.row && entry.row->traits.random) || skipped.count(entry.name)) {
    return;
  }
  std::exception_ptr refused;
  std::string text;
  try {
    call_on_cpu(entry.op, args, 0, kMaxBytes - result_bytes);
    return;
  } catch (const c10::LinAlgError&) {
    return;  // of the elements
  } catch (const std::exception& e) {
    if (is_lack_of_a_kernel(e)) return;
    refused = std::current_exception();
    text = first_line(e);
  }
  // What is refused of zeros only (a division) is not refused of other elements.
  try {
    call_on_cpu(entry.op, args, 1, kMaxBytes - result_bytes);
    return;
  } catch (const std::exception& e) {
    if (first_line(e) != text) return;
  }
  std::rethrow_exception(refused);
}

}  // namespace tpu
