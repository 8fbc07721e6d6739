#include "tpu/torch/generator.h"

#include <ATen/Utils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <deque>

#include "tpu/torch/device.h"
#include "tpu/torch/trace.h"

namespace tpu {
namespace {
constexpr int64_t kStateBytes = 16;
}

Generator::Generator(int device, uint64_t seed)
    : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(seed) {}

namespace {
// The recording of this thread that draws from the generator, if any.
Trace* recording(const Generator& g) {
  Trace* trace = Trace::current();
  return trace && trace->draws_from(&g) ? trace : nullptr;
}
}  // namespace

void Generator::set_offset(uint64_t offset) {
  if (Trace* trace = recording(*this)) {
    trace->set_draws(static_cast<int64_t>(offset - offset_));
  } else {
    offset_ = offset;
  }
}

uint64_t Generator::get_offset() const {
  const Trace* trace = recording(*this);
  return offset_ + (trace ? static_cast<uint64_t>(trace->draws()) : 0);
}

void Generator::set_current_seed(uint64_t seed) {
  if (recording(*this)) throw RecordingBroken("the generator is seeded");
  seed_ = seed;
  offset_ = 0;
}

uint64_t Generator::seed() {
  const uint64_t s = c10::detail::getNonDeterministicRandom();
  set_current_seed(s);
  return s;
}

void Generator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK(state.is_cpu() && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.is_contiguous(),
              "The state of a tpu generator is a contiguous uint8 tensor on the CPU");
  TORCH_CHECK(state.numel() == kStateBytes, "The state of a tpu generator has ", kStateBytes,
              " bytes (seed and offset, 8 bytes each), but got ", state.numel());
  const auto* bytes = static_cast<const char*>(state.data());
  uint64_t seed = 0, offset = 0;
  std::memcpy(&seed, bytes, 8);
  std::memcpy(&offset, bytes + 8, 8);
  if (seed != seed_) set_current_seed(seed);
  set_offset(offset);
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  at::Tensor state = at::empty({kStateBytes}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  auto* bytes = static_cast<char*>(state.mutable_data_ptr());
  const uint64_t offset = get_offset();
  std::memcpy(bytes, &seed_, 8);
  std::memcpy(bytes + 8, &offset, 8);
  return state.getIntrusivePtr();
}

void Generator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  auto other = c10::dynamic_intrusive_pointer_cast<Generator>(state);
  TORCH_CHECK(other, "The state must come from a tpu generator");
  if (seed_ != other->seed_) set_current_seed(other->seed_);
  set_offset(other->offset_);
}

c10::intrusive_ptr<c10::GeneratorImpl> Generator::graphsafe_get_state() const { return clone(); }

Generator* Generator::clone_impl() const {
  auto* g = new Generator(device().index());
  g->seed_ = seed_;
  g->offset_ = get_offset();
  return g;
}

at::Generator make_generator(int device) { return at::make_generator<Generator>(device); }

const at::Generator& default_generator(int device) {
  static std::mutex mutex;
  static auto* generators = new std::deque<at::Generator>;  // references stay valid as it grows
  const int index = check_device_index(device);
  std::lock_guard lock(mutex);
  while (static_cast<int>(generators->size()) <= index) {
    // Not by seed(), which would ask whether this is the default generator.
    generators->push_back(
        at::make_generator<Generator>(static_cast<int>(generators->size()), c10::detail::getNonDeterministicRandom()));
  }
  return (*generators)[index];
}

}  // namespace tpu
