// The generator of a tpu device: a seed and an offset that counts logical draws.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

namespace tpu {

// State as a 16-byte tensor: [seed u64 | offset u64], little-endian.
class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(int device, uint64_t seed = c10::default_rng_seed_val);
  void set_current_seed(uint64_t seed) override;
  // Inside a recording the offset counts the recorded draws too, and setting it moves those: see Trace::set_draws.
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

 private:
  Generator* clone_impl() const override;
  uint64_t seed_, offset_ = 0;
};

const at::Generator& default_generator(int device);
at::Generator make_generator(int device);

}  // namespace tpu
