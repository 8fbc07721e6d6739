// What the calls of tpu::pjrt cost on the plugin that TORCH_TPU_PLUGIN names.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tpu/pjrt/client.h"
#include "tpu/pjrt/compile_options.h"

namespace tpu::pjrt {
namespace {

// Microseconds a call: the best of several rounds, since the machine may be shared.
template <class F>
double best_us(int calls, F&& call) {
  double best = 1e30;
  for (int round = 0; round < 15; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count() / calls);
  }
  return best;
}

void run(const char* path) {
  auto client = Client::create(Plugin::load(path));
  const std::string options = CompileOptions().serialize();
  const Device& device = client->devices()[0];
  auto program = [&](const char* attribute) {
    return client->compile(std::string("module @add { func.func @main(%a: tensor<8x8xf32>") + attribute +
                               ", %b: tensor<8x8xf32>) -> tensor<8x8xf32> {"
                               "%0 = stablehlo.add %a, %b : tensor<8x8xf32> "
                               "return %0 : tensor<8x8xf32> } }",
                           options);
  };
  const LoadedExecutable add = program("");
  const LoadedExecutable add_donating = program(" {tf.aliasing_output = 0 : i32}");
  const std::vector<float> ones(64, 1.0f);
  const int64_t dims[] = {8, 8};
  auto fresh = [&] {
    return client
        ->buffer_from_host(ones.data(), ElementType::kF32, dims, HostBufferSemantics::kImmutableOnlyDuringCall, device)
        .buffer;
  };
  const Buffer a = fresh(), b = fresh();

  std::printf("%-52s %7.2f us\n", "add 8x8, not waiting, same arguments", best_us(2000, [&] {
                c::Buffer* const args[] = {a.raw(), b.raw()};
                c::Buffer* output = nullptr;
                add.execute(args, {}, {&output, 1});
                Buffer(client, output);
              }));
  Buffer x = fresh();
  auto chain = [&](const LoadedExecutable& executable) {
    c::Buffer* const args[] = {x.raw(), b.raw()};
    c::Buffer* output = nullptr;
    executable.execute(args, {}, {&output, 1});
    x = Buffer(client, output);
  };
  std::printf("%-52s %7.2f us\n", "add 8x8, not waiting, chain", best_us(2000, [&] { chain(add); }));
  std::printf("%-52s %7.2f us\n", "add 8x8, not waiting, chain with donation",
              best_us(2000, [&] { chain(add_donating); }));
  std::printf("%-52s %7.2f us\n", "add 8x8 and wait for its event", best_us(1000, [&] {
                chain(add);
                x.ready_event().await();
              }));
  std::printf("%-52s %7.2f us\n", "add 8x8 and read the result", best_us(1000, [&] {
                std::array<float, 64> result;
                chain(add);
                x.to_host(result.data(), sizeof(result)).await();
              }));
  const float scalar = 1;
  std::printf("%-52s %7.2f us\n", "host scalar to device", best_us(2000, [&] {
                client->buffer_from_host(&scalar, ElementType::kF32, {}, HostBufferSemantics::kImmutableOnlyDuringCall,
                                         device);
              }));
  const Buffer scalar_buffer =
      client->buffer_from_host(&scalar, ElementType::kF32, {}, HostBufferSemantics::kImmutableOnlyDuringCall, device)
          .buffer;
  std::printf("%-52s %7.2f us\n", "ready scalar to host: to_host", best_us(2000, [&] {
                float value;
                scalar_buffer.to_host(&value, sizeof(value)).await();
              }));
  std::printf("%-52s %7.2f us\n", "ready scalar to host: copy_raw_to_host", best_us(2000, [&] {
                float value;
                scalar_buffer.copy_raw_to_host(&value, 0, sizeof(value)).await();
              }));
  std::printf("%-52s %7.2f us\n", "ready scalar to host: read", best_us(2000, [&] {
                float value;
                scalar_buffer.read(&value, sizeof(value));
              }));
  std::printf("%-52s %7.2f us\n", "ready event and unsafe pointer", best_us(2000, [&] {
                scalar_buffer.ready_event().await();
                scalar_buffer.unsafe_pointer();
              }));
  const std::string bytes = add.serialize();
  std::printf("%-52s %7.0f us, %zu bytes\n", "deserialize", best_us(10, [&] { client->deserialize(bytes); }),
              bytes.size());
  std::printf("%-52s %7.0f us\n", "compile", best_us(2, [&] { program(""); }));
}

}  // namespace
}  // namespace tpu::pjrt

int main() {
  const char* path = std::getenv("TORCH_TPU_PLUGIN");
  if (path == nullptr) {
    std::printf("TORCH_TPU_PLUGIN names no plugin\n");
    return 77;
  }
  tpu::pjrt::run(path);
}
