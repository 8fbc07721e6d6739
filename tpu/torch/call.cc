#include "tpu/torch/call.h"

#include <ATen/Context.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <numeric>

#include "tpu/torch/device.h"
#include "tpu/torch/entry.h"
#include "tpu/torch/scalar_type.h"

namespace tpu {
namespace {

// Tags keep arguments of different kinds apart in the key.
enum Tag : uint64_t { kNone = 1, kTensor, kHostTensor, kList, kInts, kNumber, kText, kDevice, kGenerator, kOther };

enum Flag : uint64_t {
  kStrided = 1,
  kReshaped = 2,
  kWindow = 4,
  kUnwritten = 8,
  kConj = 16,
  kNeg = 32,
  kWrapped = 64,
  kReinterpreted = 128,
};

[[noreturn]] void several_devices(const OpEntry& entry, c10::Device a, c10::Device b) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", a, " and ", b,
              "! (when calling ", entry.name, "; move one of them with .to())");
}

class Collector {
 public:
  Collector(const OpEntry& entry, Call& call) : entry_(entry), call_(call), key_(call.key) {}

  void argument(const c10::IValue& v, const ArgumentInfo& info) {
    if (v.isTensor()) {
      tensor(v.unsafeToTensorImpl(), info);
    } else if (v.isNone()) {
      key_.push(kNone);
    } else if (info.is_number && !v.isList()) {
      number(v.toScalar(), info);
    } else if (v.isInt()) {
      if (info.is_runtime) {
        key_.push(kNumber | 1 << 8);
      } else {
        key_.push(kInts | 1 << 8);
        key_.push(static_cast<uint64_t>(v.toInt()));
      }
    } else if (v.isBool()) {
      key_.push(kInts | 2 << 8 | static_cast<uint64_t>(v.toBool()) << 16);
    } else if (v.isDouble()) {
      number(v.toScalar(), info);
    } else if (v.isTensorList()) {
      const auto list = v.toTensorVector();
      key_.push(kList | list.size() << 8);
      for (size_t i = 0; i < list.size(); ++i) {
        element_ = static_cast<int>(i);
        tensor(list[i].unsafeGetTensorImpl(), info);
      }
      element_ = -1;
    } else if (v.isIntList()) {
      const auto list = v.toIntList();
      key_.push(kInts | 3 << 8 | list.size() << 16);
      if (info.is_runtime) return;
      for (int64_t i : list) key_.push(static_cast<uint64_t>(i));
    } else if (v.isList()) {
      const auto list = v.toListRef();
      key_.push(kList | list.size() << 8 | 1ull << 32);
      for (const c10::IValue& e : list) argument(e, info);
    } else if (v.isString()) {
      const std::string& s = v.toStringRef();
      key_.push(kText | s.size() << 8);
      for (size_t i = 0; i < s.size(); i += 8) {
        uint64_t w = 0;
        std::memcpy(&w, s.data() + i, std::min<size_t>(8, s.size() - i));
        key_.push(w);
      }
    } else if (v.isDevice()) {
      const c10::Device d = v.toDevice();
      if (d.type() == c10::DeviceType::PrivateUse1) call_.device = check_device_index(d.index());
      key_.push(kDevice);
    } else if (v.isGenerator()) {
      call_.generator = v.toGenerator().unsafeGetGeneratorImpl();
      key_.push(kGenerator);
    } else if (v.isSymInt()) {
      key_.push(kInts | 1 << 8);
      key_.push(static_cast<uint64_t>(v.toSymInt().guard_int(__FILE__, __LINE__)));
    } else if (v.isScalar()) {
      number(v.toScalar(), info);
    } else {
      TORCH_CHECK_NOT_IMPLEMENTED(false, entry_.name, ": argument '", info.name,
                                  "' has a type that the tpu device does not take: ", v.tagKind());
    }
  }

  void finish() {
    key_.push(static_cast<uint64_t>(call_.device));
    // Programs with products in them depend on torch.set_float32_matmul_precision.
    if (entry_.form == Form::kDecomposed || entry_.family == "matmul" || entry_.family == "conv" ||
        entry_.family == "attention" || entry_.family == "distance" || entry_.family == "rnn") {
      key_.push(static_cast<uint64_t>(at::globalContext().float32MatmulPrecision()));
    }
    for (const Write& w : writes_) {
      const Operand& written = call_.operands[w.operand];
      if (!entry_.may_overlap) at::assert_no_internal_overlap(written.impl);
      if (!shares_) continue;
      for (size_t i = 0; i < call_.operands.size(); ++i) {
        const Operand& o = call_.operands[i];
        if (o.impl == written.impl || o.cell != written.cell) continue;
        // A foreach op takes one element of its lists after the other.
        if (entry_.form == Form::kForeach && elements_[i] != w.element && elements_[i] >= 0) continue;
        // As at::assert_no_partial_overlap, which libtorch does not export for impls.
        TORCH_CHECK(at::get_overlap_status(written.impl, o.impl) != at::MemOverlapStatus::Partial,
                    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
                    "single memory location. Please clone() the tensor before performing the operation.");
      }
    }
  }

 private:
  void number(const c10::Scalar& s, const ArgumentInfo& info) {
    const uint64_t kind = s.isBoolean() ? 1 : s.isIntegral(false) ? 2 : s.isFloatingPoint() ? 3 : 4;
    uint64_t word = kNumber | kind << 16;
    if (info.is_alpha) {
      const bool zero = s.equal(0), one = s.equal(1);
      word |= uint64_t{zero} << 24 | uint64_t{one} << 25;
    }
    key_.push(word);
    if (info.is_runtime) return;
    switch (kind) {
      case 1:
        key_.push(s.toBool());
        break;
      case 2:
        key_.push(static_cast<uint64_t>(s.toLong()));
        break;
      case 3:
        key_.push(std::bit_cast<uint64_t>(s.toDouble()));
        break;
      default: {
        const c10::complex<double> c = s.toComplexDouble();
        key_.push(std::bit_cast<uint64_t>(c.real()));
        key_.push(std::bit_cast<uint64_t>(c.imag()));
      }
    }
  }

  int first_with(Cell* cell) {
    const int n = static_cast<int>(call_.operands.size());
    if (n < 24) {
      for (int i = 0; i < n; ++i) {
        if (call_.operands[i].cell == cell) return i;
      }
      return n;
    }
    if (index_.empty()) {
      for (int i = 0; i < n; ++i) index_.emplace(call_.operands[i].cell, i);
    }
    return index_.emplace(cell, n).first->second;
  }

  void tensor(c10::TensorImpl* t, const ArgumentInfo& info) {
    if (t == c10::UndefinedTensorImpl::singleton()) {
      key_.push(kNone);
      return;
    }
    const c10::ScalarType type = c10::typeMetaToScalarType(t->dtype());
    const uint64_t dtype = static_cast<uint64_t>(type);
    const uint64_t wrapped = t->is_wrapped_number() ? kWrapped : 0;
    if (t->device_type() != c10::DeviceType::PrivateUse1) {
      if (t->device_type() == c10::DeviceType::CPU && t->dim() == 0 && !info.is_write && t->has_storage()) {
        key_.push(kHostTensor | dtype << 8 | wrapped << 32);
        operand({t, nullptr, -1, -1});
        if (entry_.form == Form::kDecomposed) {
          // A decomposition may branch on the value.
          uint64_t bits[2] = {0, 0};
          std::memcpy(bits, t->data(), t->itemsize());
          key_.push(bits[0]), key_.push(bits[1]);
        }
        return;
      }
      several_devices(entry_, c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(call_.device)),
                      t->device());
    }
    TORCH_CHECK_NOT_IMPLEMENTED(t->has_storage() && t->layout() == c10::kStrided, entry_.name,
                                ": the tpu device computes with dense strided tensors, but argument '", info.name,
                                "' has layout ", t->layout());
    const int device = t->device().index();
    if (!have_device_) {
      call_.device = device;
      have_device_ = true;
    } else if (device != call_.device) {
      several_devices(entry_, c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(call_.device)),
                      t->device());
    }

    Cell& cell = cell_of(*t);
    const int self = static_cast<int>(call_.operands.size());
    const int first = first_with(&cell);
    uint64_t flags = wrapped | (t->is_conj() ? kConj : 0) | (t->is_neg() ? kNeg : 0);
    const bool contiguous = t->is_contiguous();
    if (!contiguous) flags |= kStrided;
    int plan = -1;
    const auto sizes = t->sizes();
    const int64_t offset = t->storage_offset();

    if (const runtime::DeviceBuffer* b = cell.buffer.get()) {
      const ir::DType want = to_dtype(type);
      if (b->dtype() != want && b->dtype() == ir::DType::kUI8 && cell.producer == kUploaded) [[unlikely]] {
        give_dtype(cell, *t);
        b = cell.buffer.get();
      }
      if (b->dtype() == want && contiguous && offset == 0 && b->numel() == t->numel()) [[likely]] {
        if (sizes != c10::IntArrayRef(b->dims())) flags |= kReshaped;
        head(dtype, flags, first, sizes);
        if (flags & kReshaped) list(b->dims());
      } else {
        flags |= kWindow | (b->dtype() != want ? kReinterpreted : 0);
        head(dtype, flags, first, sizes);
        if (!contiguous) list(t->strides());
        list(b->dims());
        if (b->dtype() != want) key_.push(static_cast<uint64_t>(b->dtype()));
        plan = add_plan(dense_of(cell, t->unsafe_storage().nbytes(), want).dims, *t);
      }
    } else {
      TORCH_CHECK(cell.lost.empty(), "The tensor's content was lost: ", cell.lost);
      head(dtype, flags | kUnwritten, first, sizes);
      if (!contiguous) list(t->strides());
      const size_t bytes = t->unsafe_storage().nbytes();
      key_.push(bytes);
      plan = add_plan(dense_of(cell, bytes, to_dtype(type)).dims, *t);
    }
    if (entry_.form == Form::kDecomposed) key_.push(static_cast<uint64_t>(offset));
    operand({t, &cell, first, plan});
    shares_ = shares_ || first != self;
    if (info.is_write) writes_.push_back({self, element_});
  }

  void operand(const Operand& o) {
    call_.operands.push_back(o);
    if (entry_.form == Form::kForeach) elements_.push_back(element_);
  }
  void head(uint64_t dtype, uint64_t flags, int first, c10::IntArrayRef sizes) {
    key_.push(kTensor | dtype << 8 | sizes.size() << 16 | flags << 24 | static_cast<uint64_t>(first) << 40);
    for (int64_t s : sizes) key_.push(static_cast<uint64_t>(s));
  }
  void list(c10::IntArrayRef values) {
    key_.push(values.size());
    for (int64_t v : values) key_.push(static_cast<uint64_t>(v));
  }
  int add_plan(const ir::Dims& dense, const c10::TensorImpl& t) {
    call_.plans.push_back(ops::plan_view(dense, {t.sizes().data(), t.sizes().size()},
                                         {t.strides().data(), t.strides().size()}, t.storage_offset()));
    const ops::ViewPlan& p = call_.plans.back();
    key_.push(static_cast<uint64_t>(p.kind) | static_cast<uint64_t>(p.num_segments) << 8);
    for (int j = 0; j < p.num_segments; ++j) key_.push(static_cast<uint64_t>(p.extents[j]));
    return static_cast<int>(call_.plans.size()) - 1;
  }

  const OpEntry& entry_;
  Call& call_;
  Key& key_;
  struct Write {
    int operand, element;
  };
  bool have_device_ = false;
  bool shares_ = false;                // some operands share a storage
  int element_ = -1;                   // of the list that is being collected
  c10::SmallVector<int, 8> elements_;  // kForeach: of each operand, -1 where it is not in a list
  c10::SmallVector<Write, 4> writes_;
  std::unordered_map<Cell*, int> index_;
};

}  // namespace

ir::Dims memory_order(c10::IntArrayRef strides) {
  ir::Dims order(strides.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
  return order;
}

Dense dense_of(const Cell& cell, size_t storage_bytes, ir::DType dtype) {
  if (!cell.buffer) return {dtype, {static_cast<int64_t>(storage_bytes / ir::size_bytes(dtype))}};
  if (cell.buffer->dtype() == dtype) return {dtype, cell.buffer->dims()};
  return {dtype, ops::reinterpreted_dims(cell.buffer->dims(), cell.buffer->dtype(), dtype)};
}

void collect(const OpEntry& entry, c10::ArrayRef<c10::IValue> args, Call& call) {
  call.device = current_device();
  Collector c(entry, call);
  for (size_t i = 0; i < args.size(); ++i) c.argument(args[i], entry.arguments[i]);
  c.finish();
}

namespace {

void describe(const c10::IValue& v, const ArgumentInfo& info, std::string& s) {
  if (v.isTensor()) {
    const at::Tensor& t = v.toTensor();
    if (!t.defined()) {
      s += "-";
      return;
    }
    s += has_dtype(t.scalar_type()) ? std::string(ir::text(to_dtype(t.scalar_type()))) : c10::toString(t.scalar_type());
    s += "[";
    for (int64_t d = 0; d < t.dim(); ++d) s += (d ? "," : "") + std::to_string(t.size(d));
    s += "]";
    if (!t.is_contiguous()) s += "(strided)";
    if (!t.is_cpu() && t.storage_offset() != 0) s += "(offset)";
    if (t.is_cpu()) s += "(cpu)";
  } else if (v.isTensorList()) {
    const auto list = v.toTensorVector();
    s += std::to_string(list.size()) + "x";
    if (!list.empty()) describe(list[0], info, s);
  } else if (v.isNone()) {
    s += "-";
  } else if (info.is_runtime) {
    s += info.name;
  } else {
    std::ostringstream o;
    o << info.name << "=" << v;
    s += o.str();
  }
}

}  // namespace

std::string describe(const OpEntry& entry, c10::ArrayRef<c10::IValue> args) {
  std::string s;
  for (size_t i = 0; i < args.size(); ++i) {
    if (i) s += ", ";
    describe(args[i], entry.arguments[i], s);
  }
  return s;
}

}  // namespace tpu
