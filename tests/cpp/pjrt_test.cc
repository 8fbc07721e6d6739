// Tests of tpu::pjrt on the plugin that the environment variable TORCH_TPU_PLUGIN names (skipped
// without one). Arguments: a plugin that is too old, and a library that is none.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tpu/pjrt/client.h"
#include "tpu/pjrt/compile_options.h"
#include "tpu/pjrt/topology.h"

namespace tpu::pjrt {
namespace {

int failures = 0;

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::printf("  %s:%d: CHECK(%s)\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                          \
    }                                                                      \
  } while (false)

template <class F>
Error error_of(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(Error::Code::kOk, "");
}

bool contains(const Error& error, const std::string& words) {
  return std::string(error.what()).find(words) != std::string::npos;
}

constexpr int64_t kDims[] = {2, 3};
const std::string kAdd = R"(module @add {
  func.func @main(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.add %a, %b : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
})";
const std::string kAddDonating = R"(module @add_donating {
  func.func @main(%a: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<2x3xf32>)
      -> tensor<2x3xf32> {
    %0 = stablehlo.add %a, %b : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
})";

// The client that most tests share.
struct Fixture {
  std::shared_ptr<Plugin> plugin;
  std::shared_ptr<Client> client;

  Buffer floats(std::vector<float> values, size_t device = 0) const {
    auto [buffer, done] =
        client->buffer_from_host(values.data(), ElementType::kF32, kDims, HostBufferSemantics::kImmutableOnlyDuringCall,
                                 client->devices()[device]);
    done.await();
    return std::move(buffer);
  }

  std::vector<float> floats(const Buffer& buffer) const {
    std::vector<float> result(buffer.to_host_size() / sizeof(float));
    buffer.to_host(result.data(), result.size() * sizeof(float)).await();
    return result;
  }

  Buffer run(const LoadedExecutable& program, std::vector<const Buffer*> args, std::vector<int64_t> non_donatable = {},
             const Device* device = nullptr) const {
    std::vector<c::Buffer*> raw;
    for (const Buffer* arg : args) raw.push_back(arg->raw());
    c::Buffer* output = nullptr;
    program.execute(raw, non_donatable, {&output, 1}, device ? device->raw() : nullptr);
    return Buffer(client, output);
  }
};

const std::vector<float> kOnes(6, 1.0f);
const std::vector<float> kCount = {0, 1, 2, 3, 4, 5};
const std::vector<float> kCountPlusOne = {1, 2, 3, 4, 5, 6};

void test_plugin_loads_once(const Fixture& f) {
  CHECK(Plugin::load(f.plugin->path()) == f.plugin);
  CHECK(f.plugin->api_minor() >= c::kOldestMinor);
  CHECK(f.plugin->has(&c::Api::Compile));
  CHECK(std::getenv("TF_CPP_MIN_LOG_LEVEL") == nullptr);
}

void test_client_knows_its_devices(const Fixture& f) {
  CHECK(!f.client->platform_name().empty());
  CHECK(!f.client->platform_version().empty());
  CHECK(f.client->global_device_count() >= f.client->devices().size());
  CHECK(!f.client->devices().empty());
  for (const Device& device : f.client->devices()) {
    CHECK(!device.kind().empty());
    CHECK(!device.description().text.empty());
    CHECK(&f.client->device(device.raw()) == &device);
    device.memory_stats();
    device.clear_memory_stats();
  }
}

void test_every_element_type_survives_a_round_trip(const Fixture& f) {
  struct Case {
    ElementType type;
    size_t size;
    uint8_t mask;  // of the bytes that are valid values
  };
  const Case cases[] = {
      {ElementType::kPred, 1, 1},         {ElementType::kS8, 1, 255},         {ElementType::kS16, 2, 255},
      {ElementType::kS32, 4, 255},        {ElementType::kS64, 8, 255},        {ElementType::kU8, 1, 255},
      {ElementType::kU16, 2, 255},        {ElementType::kU32, 4, 255},        {ElementType::kU64, 8, 255},
      {ElementType::kF16, 2, 255},        {ElementType::kF32, 4, 255},        {ElementType::kF64, 8, 255},
      {ElementType::kBF16, 2, 255},       {ElementType::kC64, 8, 255},        {ElementType::kC128, 16, 255},
      {ElementType::kF8E5M2, 1, 255},     {ElementType::kF8E4M3FN, 1, 255},   {ElementType::kF8E4M3B11FNUZ, 1, 255},
      {ElementType::kF8E5M2FNUZ, 1, 255}, {ElementType::kF8E4M3FNUZ, 1, 255}, {ElementType::kS4, 1, 7},
      {ElementType::kU4, 1, 15},          {ElementType::kS2, 1, 1},           {ElementType::kU2, 1, 3},
      {ElementType::kF8E4M3, 1, 255},     {ElementType::kF8E3M4, 1, 255},     {ElementType::kF8E8M0FNU, 1, 255},
      {ElementType::kF4E2M1FN, 1, 15},
  };
  for (const Case& t : cases) {
    std::vector<uint8_t> sent(6 * t.size);
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<uint8_t>(i * 37 + 5) & t.mask;
    auto [buffer, done] = f.client->buffer_from_host(
        sent.data(), t.type, kDims, HostBufferSemantics::kImmutableUntilTransferCompletes, f.client->devices()[0]);
    done.await();
    CHECK(buffer.element_type() == t.type);
    CHECK(buffer.dims().size() == 2 && buffer.dims()[0] == 2 && buffer.dims()[1] == 3);
    CHECK(buffer.to_host_size() == sent.size());
    CHECK(buffer.on_device_size() > 0);
    std::vector<uint8_t> received(sent.size());
    buffer.to_host(received.data(), received.size()).await();
    CHECK(received == sent);
    std::vector<uint8_t> read(sent.size());
    buffer.read(read.data(), read.size());
    CHECK(read == sent);
    if (received != sent) std::printf("  element type %u\n", static_cast<uint32_t>(t.type));
  }
}

void test_scalars_and_empty_arrays_transfer(const Fixture& f) {
  const float value = 3.5f;
  auto scalar = f.client->buffer_from_host(&value, ElementType::kF32, {}, HostBufferSemantics::kImmutableOnlyDuringCall,
                                           f.client->devices()[0]);
  CHECK(f.floats(scalar.buffer) == std::vector<float>{3.5f});
  CHECK(scalar.buffer.dims().empty());
  const int64_t dims[] = {0, 3};
  auto empty = f.client->buffer_from_host(&value, ElementType::kF32, dims,
                                          HostBufferSemantics::kImmutableOnlyDuringCall, f.client->devices()[0]);
  CHECK(empty.buffer.to_host_size() == 0);
  CHECK(f.floats(empty.buffer).empty());
  float back = 0;
  scalar.buffer.read(&back, sizeof(back));
  CHECK(back == 3.5f);
  empty.buffer.read(&back, 0);
}

void test_strided_host_memory_arrives_dense(const Fixture& f) {
  const std::vector<float> column_major = {0, 3, 1, 4, 2, 5};
  const int64_t strides[] = {4, 8};
  auto sent =
      f.client->buffer_from_host(column_major.data(), ElementType::kF32, kDims,
                                 HostBufferSemantics::kImmutableOnlyDuringCall, f.client->devices()[0], strides);
  CHECK(f.floats(sent.buffer) == kCount);
}

void test_high_ranks_come_back_row_major(const Fixture& f) {
  const std::vector<int64_t> dims = {1, 2, 1, 3, 1, 1, 1, 1, 1, 1};
  auto sent = f.client->buffer_from_host(kCount.data(), ElementType::kF32, dims,
                                         HostBufferSemantics::kImmutableOnlyDuringCall, f.client->devices()[0]);
  CHECK(f.floats(sent.buffer) == kCount);
}

void test_raw_copy_reads_a_part(const Fixture& f) {
  const Buffer buffer = f.floats(kCount);
  std::vector<float> part(2);
  const Error error = error_of([&] { buffer.copy_raw_to_host(part.data(), 8, 8).await(); });
  if (error.code() == Error::Code::kUnimplemented) return;
  CHECK(error.code() == Error::Code::kOk);
  CHECK((part == std::vector<float>{2, 3}));
}

void test_too_small_destination_is_an_error(const Fixture& f) {
  const Buffer buffer = f.floats(kCount);
  float one = 0;
  CHECK(error_of([&] { buffer.to_host(&one, sizeof(one)).await(); }).code() == Error::Code::kInvalidArgument);
  CHECK(error_of([&] { buffer.read(&one, sizeof(one)); }).code() == Error::Code::kInvalidArgument);
}

void test_buffers_move_and_free(const Fixture& f) {
  Buffer first = f.floats(kCount);
  c::Buffer* raw = first.raw();
  Buffer second = std::move(first);
  CHECK(second.raw() == raw && !first);
  CHECK(&second.device() == &f.client->devices()[0]);
  CHECK(!second.is_deleted());
  second.free_memory();
  CHECK(second.is_deleted());
  CHECK(error_of([&] { f.floats(second); }).code() != Error::Code::kOk);
  float lost[6];
  CHECK(error_of([&] { second.read(lost, sizeof(lost)); }).code() != Error::Code::kOk);
  second = f.floats(kOnes);
  CHECK(f.floats(second) == kOnes);
}

void test_a_view_uses_the_callers_memory(const Fixture& f) {
  alignas(64) float memory[6] = {0, 1, 2, 3, 4, 5};
  std::promise<void> gone;
  {
    Buffer view;
    const Error error = error_of([&] {
      view =
          f.client->view_of_host(memory, ElementType::kF32, kDims, f.client->devices()[0], [&] { gone.set_value(); });
    });
    if (error.code() == Error::Code::kUnimplemented) return;
    CHECK(error.code() == Error::Code::kOk);
    CHECK(view.unsafe_pointer() == reinterpret_cast<uintptr_t>(memory));
    const LoadedExecutable add = f.client->compile(kAdd, CompileOptions().serialize());
    const Buffer ones = f.floats(kOnes);
    CHECK(f.floats(f.run(add, {&view, &ones})) == kCountPlusOne);
  }
  CHECK(gone.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready);
}

void test_uninitialized_buffer_has_its_shape(const Fixture& f) {
  Buffer buffer;
  const Error error =
      error_of([&] { buffer = f.client->uninitialized_buffer(ElementType::kF32, kDims, f.client->devices()[0]); });
  if (error.code() == Error::Code::kUnimplemented) return;
  CHECK(error.code() == Error::Code::kOk);
  CHECK(buffer.to_host_size() == 24);
}

void test_add_runs(const Fixture& f) {
  const LoadedExecutable add = f.client->compile(kAdd, CompileOptions().serialize());
  CHECK(add.num_outputs() == 1);
  CHECK(add.name() == "add");
  CHECK(add.output_element_types() == std::vector{ElementType::kF32});
  CHECK((add.output_dims() == std::vector<std::vector<int64_t>>{{2, 3}}));
  CHECK(add.executable().num_replicas() == 1 && add.executable().num_partitions() == 1);
  CHECK(add.addressable_devices() == std::vector{&f.client->devices()[0]});
  add.fingerprint();
  add.cost_analysis();
  add.compiled_memory_stats();
  add.executable().optimized_program();
  const Buffer a = f.floats(kCount), b = f.floats(kOnes);
  const Buffer sum = f.run(add, {&a, &b});
  CHECK(f.floats(sum) == kCountPlusOne);
  CHECK(f.floats(a) == kCount);
}

void test_completion_event_of_a_run(const Fixture& f) {
  const LoadedExecutable add = f.client->compile(kAdd, CompileOptions().serialize());
  const Buffer a = f.floats(kCount);
  c::Buffer* const args[] = {a.raw(), a.raw()};
  c::Buffer* output = nullptr;
  Event done;
  add.execute(args, {}, {&output, 1}, nullptr, &done);
  const Buffer result(f.client, output);
  CHECK(done.raw() != nullptr);
  done.await();
  CHECK(done.is_ready());
}

void test_wrong_calls_are_errors(const Fixture& f) {
  const LoadedExecutable add = f.client->compile(kAdd, CompileOptions().serialize());
  const Buffer a = f.floats(kCount);
  CHECK(error_of([&] { f.run(add, {&a}); }).code() == Error::Code::kInvalidArgument);
  const Error error = error_of([&] {
    c::Buffer* const args[] = {a.raw(), a.raw()};
    add.execute(args, {}, {});
  });
  CHECK(error.code() == Error::Code::kInvalidArgument);
  CHECK(contains(error, "places for 1 outputs"));
}

void test_a_donated_buffer_is_gone(const Fixture& f) {
  const LoadedExecutable add = f.client->compile(kAddDonating, CompileOptions().serialize());
  const Buffer a = f.floats(kCount), b = f.floats(kOnes);
  const uintptr_t address = a.unsafe_pointer();
  const Buffer sum = f.run(add, {&a, &b});
  CHECK(a.is_deleted() && !b.is_deleted());
  CHECK(sum.unsafe_pointer() == address);
  CHECK(f.floats(sum) == kCountPlusOne);
  CHECK(error_of([&] { f.run(add, {&a, &b}); }).code() == Error::Code::kInvalidArgument);
  CHECK(error_of([&] { f.floats(a); }).code() != Error::Code::kOk);
}

void test_non_donatable_is_honoured(const Fixture& f) {
  const LoadedExecutable add = f.client->compile(kAddDonating, CompileOptions().serialize());
  const Buffer a = f.floats(kCount), b = f.floats(kOnes);
  CHECK(f.floats(f.run(add, {&a, &b}, {0})) == kCountPlusOne);
  CHECK(!a.is_deleted());
  CHECK(f.floats(a) == kCount);
}

void test_an_external_reference_prevents_donation(const Fixture& f) {
  const LoadedExecutable add = f.client->compile(kAddDonating, CompileOptions().serialize());
  const Buffer a = f.floats(kCount), b = f.floats(kOnes);
  a.increase_external_reference_count();
  CHECK(f.floats(f.run(add, {&a, &b})) == kCountPlusOne);
  CHECK(!a.is_deleted());
  CHECK(f.floats(a) == kCount);
  a.decrease_external_reference_count();
}

void test_a_serialized_program_loads_again(const Fixture& f) {
  const std::string options = CompileOptions().serialize();
  const std::string bytes = f.client->compile(kAdd, options).serialize();
  CHECK(!bytes.empty());
  const Buffer a = f.floats(kCount), b = f.floats(kOnes);
  for (const std::string& given : {std::string(), options}) {
    const LoadedExecutable add = f.client->deserialize(bytes, given);
    CHECK(add.num_outputs() == 1);
    CHECK(f.floats(f.run(add, {&a, &b})) == kCountPlusOne);
  }
  CHECK(error_of([&] { f.client->deserialize("rubbish"); }).code() != Error::Code::kOk);
  CHECK(error_of([&] { f.client->deserialize(bytes.substr(0, bytes.size() / 2)); }).code() != Error::Code::kOk);
}

void test_compile_errors_keep_the_plugins_words(const Fixture& f) {
  const std::string options = CompileOptions().serialize();
  CHECK(contains(error_of([&] { f.client->compile("module { nonsense }", options); }),
                 "custom op 'nonsense' is unknown"));
  const Error error = error_of([&] {
    CompileOptions unknown;
    unknown.env_option_overrides = {{"xla_no_such_flag", true}};
    f.client->compile(kAdd, unknown.serialize());
  });
  CHECK(error.code() == Error::Code::kInvalidArgument);
  CHECK(contains(error, "xla_no_such_flag"));
}

void test_compile_options_serialize_to_known_bytes(const Fixture&) {
  CHECK(CompileOptions().serialize() == std::string("\x1a\x04\x20\x01\x28\x01", 6));
  CompileOptions options;
  options.num_replicas = 2;
  options.num_partitions = 200;
  options.use_spmd_partitioning = true;
  options.env_option_overrides = {{"s", std::string("x")}, {"b", true}, {"i", int64_t{-1}}, {"d", 1.0}};
  CHECK(options.serialize() == std::string("\x1a\x07\x20\x02\x28\xc8\x01\x30\x01"
                                           "\x3a\x08\x0a\x01s\x12\x03\x0a\x01x"
                                           "\x3a\x07\x0a\x01"
                                           "b\x12\x02\x10\x01"
                                           "\x3a\x10\x0a\x01i\x12\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
                                           "\x3a\x0e\x0a\x01"
                                           "d\x12\x09\x21\x00\x00\x00\x00\x00\x00\xf0\x3f",
                                           62));
}

void test_option_overrides_of_every_kind_are_accepted(const Fixture& f) {
  if (f.client->platform_name() != "cpu") return;
  CompileOptions options;
  options.env_option_overrides = {{"xla_cpu_enable_fast_min_max", false},
                                  {"xla_backend_optimization_level", int64_t{0}},
                                  {"xla_dump_hlo_module_re", std::string("none")}};
  const Buffer a = f.floats(kCount), b = f.floats(kOnes);
  const LoadedExecutable add = f.client->compile(kAdd, options.serialize());
  CHECK(f.floats(f.run(add, {&a, &b})) == kCountPlusOne);
}

void test_a_program_runs_on_the_device_it_was_compiled_for(const Fixture& f) {
  for (const Device& device : f.client->devices()) {
    CompileOptions options;
    options.device_assignment = {device.id()};
    const LoadedExecutable add = f.client->compile(kAdd, options.serialize());
    CHECK(add.addressable_devices() == std::vector{&device});
    const Buffer a = f.floats(kCount, device.index()), b = f.floats(kOnes, device.index());
    const Buffer sum = f.run(add, {&a, &b});
    CHECK(&sum.device() == &device);
    CHECK(f.floats(sum) == kCountPlusOne);
  }
}

void test_a_portable_program_runs_on_every_device(const Fixture& f) {
  CompileOptions options;
  options.compile_portable_executable = true;
  const LoadedExecutable add = f.client->compile(kAdd, options.serialize());
  CHECK(add.addressable_devices().empty());
  for (const Device& device : f.client->devices()) {
    const Buffer a = f.floats(kCount, device.index()), b = f.floats(kOnes, device.index());
    const Buffer sum = f.run(add, {&a, &b}, {}, &device);
    CHECK(&sum.device() == &device);
    CHECK(f.floats(sum) == kCountPlusOne);
  }
}

void test_a_buffer_copies_to_another_device(const Fixture& f) {
  const Device& last = f.client->devices().back();
  if (last.index() == 0) return;
  const Buffer copy = f.floats(kCount).copy_to_device(last);
  CHECK(&copy.device() == &last);
  CHECK(f.floats(copy) == kCount);
}

void test_devices_reduce_together(const Fixture& f) {
  const size_t count = f.client->devices().size();
  CompileOptions options;
  options.num_replicas = static_cast<int>(count);
  for (const Device& device : f.client->devices()) {
    options.device_assignment.push_back(device.id());
  }
  const LoadedExecutable all_reduce = f.client->compile(R"(module @reduce {
    func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = "stablehlo.all_reduce"(%x) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %1 = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %1 : tensor<f32>
      }) {replica_groups = dense<> : tensor<0x0xi64>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
      return %0 : tensor<2x3xf32>
    }
  })",
                                                        options.serialize());
  CHECK(all_reduce.addressable_devices().size() == count);
  std::vector<Buffer> inputs;
  std::vector<c::Buffer*> args(count), outputs(count);
  std::vector<std::span<c::Buffer* const>> arg_lists;
  std::vector<std::span<c::Buffer*>> output_lists;
  for (size_t i = 0; i < count; ++i) {
    args[i] = inputs.emplace_back(f.floats(kOnes, i)).raw();
    arg_lists.emplace_back(&args[i], 1);
    output_lists.emplace_back(&outputs[i], 1);
  }
  std::vector<Event> done(count);
  all_reduce.execute(arg_lists, {}, output_lists, done);
  for (size_t i = 0; i < count; ++i) {
    done[i].await();
    const Buffer sum(f.client, outputs[i]);
    CHECK(f.floats(sum) == std::vector<float>(6, static_cast<float>(count)));
  }
  CHECK(error_of([&] { all_reduce.execute(arg_lists, {}, {}); }).code() == Error::Code::kInvalidArgument);
}

void test_a_bounded_result_is_read_compactly(const Fixture& f) {
  const LoadedExecutable cut = f.client->compile(R"(module @cut {
    func.func @main(%x: tensor<2x3xf32>, %n: tensor<i32>)
        -> tensor<?x3xf32, #stablehlo.bounds<2, ?>> {
      %0 = stablehlo.set_dimension_size %x, %n, dim = 0
          : (tensor<2x3xf32>, tensor<i32>) -> tensor<?x3xf32, #stablehlo.bounds<2, ?>>
      return %0 : tensor<?x3xf32, #stablehlo.bounds<2, ?>>
    }
  })",
                                                 CompileOptions().serialize());
  const int32_t one = 1;
  auto size = f.client->buffer_from_host(&one, ElementType::kS32, {}, HostBufferSemantics::kImmutableOnlyDuringCall,
                                         f.client->devices()[0]);
  const Buffer a = f.floats(kCount);
  const Buffer result = f.run(cut, {&a, &size.buffer});
  CHECK(result.dims()[0] == 2 && result.unpadded_dims()[0] == 1);
  std::vector<float> values(3);
  result.to_host(values.data(), 12).await();
  CHECK((values == std::vector<float>{0, 1, 2}));
  std::vector<float> read(3);
  result.read(read.data(), 12);
  CHECK(read == values);
}

void test_event_callbacks_run_once(const Fixture& f) {
  const Buffer a = f.floats(kCount);
  std::promise<bool> succeeded;
  {
    const Event ready = a.ready_event();
    ready.on_ready([&](const Error* error) { succeeded.set_value(error == nullptr); });
  }
  CHECK(succeeded.get_future().get());
  int calls = 0;
  Event().on_ready([&](const Error* error) { calls += error == nullptr ? 1 : 100; });
  CHECK(calls == 1);
  CHECK(Event().is_ready());
  Event().await();
}

void test_an_event_of_lost_memory_tells_its_error(const Fixture& f) {
  const LoadedExecutable huge = f.client->compile(R"(module @huge {
    func.func @main(%x: tensor<f32>) -> tensor<4398046511104xf32> {
      %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<4398046511104xf32>
      return %0 : tensor<4398046511104xf32>
    }
  })",
                                                  CompileOptions().serialize());
  const float one = 1;
  auto x = f.client->buffer_from_host(&one, ElementType::kF32, {}, HostBufferSemantics::kImmutableOnlyDuringCall,
                                      f.client->devices()[0]);
  std::promise<Error::Code> code;
  const Error direct = error_of([&] {
    const Buffer result = f.run(huge, {&x.buffer});
    const Event ready = result.ready_event();
    ready.on_ready([&](const Error* error) { code.set_value(error == nullptr ? Error::Code::kOk : error->code()); });
    const Error::Code told = code.get_future().get();
    const Error awaited = error_of([&] { ready.await(); });
    CHECK(awaited.code() == told);
    throw awaited;
  });
  CHECK(direct.code() == Error::Code::kResourceExhausted);
}

void test_objects_outlive_the_names_of_their_client(const Fixture& f) {
  std::shared_ptr<Client> client = Client::create(f.plugin);
  const float one = 1;
  HostTransfer sent = client->buffer_from_host(&one, ElementType::kF32, {},
                                               HostBufferSemantics::kImmutableOnlyDuringCall, client->devices()[0]);
  const LoadedExecutable add = client->compile(kAdd, CompileOptions().serialize());
  client.reset();
  float back = 0;
  sent.buffer.to_host(&back, sizeof(back)).await();
  CHECK(back == 1);
  CHECK(add.name() == "add");
}

void test_threads_share_a_program(const Fixture& f) {
  const LoadedExecutable add = f.client->compile(kAdd, CompileOptions().serialize());
  const Buffer ones = f.floats(kOnes);
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      Buffer x = f.floats(std::vector<float>(6, 0.0f));
      for (int i = 0; i < 200; ++i) x = f.run(add, {&x, &ones});
      if (f.floats(x) == std::vector<float>(6, 200.0f)) ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 2);
}

void test_unusable_plugins_are_explained(const char* too_old, const char* no_plugin) {
  Error error = error_of([&] { Plugin::load("/nonexistent/plugin.so"); });
  CHECK(error.code() == Error::Code::kNotFound);
  CHECK(contains(error, "/nonexistent/plugin.so doesn't exist"));
  error = error_of([&] { Plugin::load("/proc/self/cmdline"); });
  CHECK(contains(error, "can't be loaded"));
  error = error_of([&] { Plugin::load(no_plugin); });
  CHECK(contains(error, "is not a PJRT plugin"));
  error = error_of([&] { Plugin::load(too_old); });
  CHECK(error.code() == Error::Code::kFailedPrecondition);
  CHECK(contains(error, "has API version 0.54, but 0.81 or newer is needed"));
}

void test_topologies_of_the_plugin(const Fixture& f) {
  // No topology has this name; a plugin that knows no topologies says so. Either way an Error.
  CHECK(error_of([&] { Topology::create(f.plugin, "no such topology"); }).code() != Error::Code::kOk);
}

#define RUN(test)                             \
  do {                                        \
    std::printf("%s\n", #test);               \
    std::fflush(stdout);                      \
    try {                                     \
      test(fixture);                          \
    } catch (const std::exception& e) {       \
      std::printf("  threw: %s\n", e.what()); \
      ++failures;                             \
    }                                         \
  } while (false)

void run_all(const char* plugin) {
  Fixture fixture;
  fixture.plugin = Plugin::load(plugin);
  fixture.client = Client::create(fixture.plugin, {{"cpu_device_count", 4}});
  std::printf("%s, API 0.%d, %zu devices\n", fixture.client->platform_name().c_str(), fixture.plugin->api_minor(),
              fixture.client->devices().size());
  RUN(test_plugin_loads_once);
  RUN(test_client_knows_its_devices);
  RUN(test_every_element_type_survives_a_round_trip);
  RUN(test_scalars_and_empty_arrays_transfer);
  RUN(test_strided_host_memory_arrives_dense);
  RUN(test_high_ranks_come_back_row_major);
  RUN(test_raw_copy_reads_a_part);
  RUN(test_too_small_destination_is_an_error);
  RUN(test_buffers_move_and_free);
  RUN(test_a_view_uses_the_callers_memory);
  RUN(test_uninitialized_buffer_has_its_shape);
  RUN(test_add_runs);
  RUN(test_completion_event_of_a_run);
  RUN(test_wrong_calls_are_errors);
  RUN(test_a_donated_buffer_is_gone);
  RUN(test_non_donatable_is_honoured);
  RUN(test_an_external_reference_prevents_donation);
  RUN(test_a_serialized_program_loads_again);
  RUN(test_compile_errors_keep_the_plugins_words);
  RUN(test_compile_options_serialize_to_known_bytes);
  RUN(test_option_overrides_of_every_kind_are_accepted);
  RUN(test_a_program_runs_on_the_device_it_was_compiled_for);
  RUN(test_a_portable_program_runs_on_every_device);
  RUN(test_a_buffer_copies_to_another_device);
  RUN(test_devices_reduce_together);
  RUN(test_a_bounded_result_is_read_compactly);
  RUN(test_event_callbacks_run_once);
  RUN(test_an_event_of_lost_memory_tells_its_error);
  RUN(test_objects_outlive_the_names_of_their_client);
  RUN(test_threads_share_a_program);
  RUN(test_topologies_of_the_plugin);
}

// Collects what goes to stderr while it lives.
class StderrCapture {
 public:
  StderrCapture() : saved_(dup(STDERR_FILENO)), file_(std::tmpfile()) { dup2(fileno(file_), STDERR_FILENO); }
  ~StderrCapture() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    std::fclose(file_);
  }

  std::string text() const {
    std::string result;
    std::rewind(file_);
    for (int ch; (ch = std::fgetc(file_)) != EOF;) result.push_back(static_cast<char>(ch));
    return result;
  }

 private:
  int saved_;
  std::FILE* file_;
};

}  // namespace
}  // namespace tpu::pjrt

int main(int argc, char** argv) {
  using namespace tpu::pjrt;
  if (argc == 3) test_unusable_plugins_are_explained(argv[1], argv[2]);
  const char* plugin = std::getenv("TORCH_TPU_PLUGIN");
  if (plugin == nullptr) {
    std::printf("TORCH_TPU_PLUGIN names no plugin: the rest is skipped\n");
    return failures == 0 ? 77 : 1;
  }
  try {
    const StderrCapture capture;
    run_all(plugin);
    const std::string log = capture.text();
    std::printf("test_plugin_writes_nothing_to_stderr\n%s", log.c_str());
    CHECK(log.empty());
  } catch (const std::exception& error) {
    std::printf("threw: %s\n", error.what());
    ++failures;
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
