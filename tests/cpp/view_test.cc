// Views against plain C++: the plans of many random ones, and the programs that read and write some of
// them on the plugin. The seed is fixed.

#include "tpu/ops/view.h"

#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "tests/cpp/machine.h"

namespace tpu::ops {
namespace {

using ir::Dims;
using test::Array;
using test::fail;
using Kind = ViewPlan::Kind;

struct View {
  Dims buffer, sizes, strides;
  int64_t offset = 0;

  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    return n;
  }
  // Where in the flat buffer each element lies, in row-major order of the tensor.
  std::vector<int64_t> positions() const {
    std::vector<int64_t> p;
    for (int64_t i = 0; i < numel(); ++i) {
      int64_t rest = i, at = offset;
      for (size_t d = sizes.size(); d-- > 0;) {
        at += rest % sizes[d] * strides[d];
        rest /= sizes[d];
      }
      p.push_back(at);
    }
    return p;
  }
  bool overlaps() const {
    const std::vector<int64_t> p = positions();
    return std::set<int64_t>(p.begin(), p.end()).size() != p.size();
  }
  ViewPlan plan() const { return plan_view(buffer, sizes, strides, offset); }
  std::string text() const {
    auto list = [](const Dims& d) {
      std::string s = "(";
      for (int64_t v : d) s += std::to_string(v) + ",";
      return s + ")";
    };
    return "buffer " + list(buffer) + " sizes " + list(sizes) + " strides " + list(strides) + " offset " +
           std::to_string(offset);
  }
};

int64_t product(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

Dims dense_strides(const Dims& sizes) {
  Dims s(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) s[d - 1] = s[d] * std::max<int64_t>(sizes[d], 1);
  return s;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // In [low, high].
  int64_t in(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  bool one_of(int64_t n) { return in(1, n) == 1; }

  Dims dims(int64_t max_rank, int64_t max_size) {
    Dims d(in(0, max_rank));
    for (int64_t& s : d) s = in(1, max_size);
    return d;
  }

  // What a few of PyTorch's view functions make of a dense tensor; sometimes anything that lies inside.
  View view() {
    View v;
    v.buffer = dims(4, 6);
    const int64_t total = product(v.buffer);
    if (one_of(6)) {
      v.sizes = dims(4, 5);
      v.strides.clear();
      int64_t last = 0;
      for (int64_t s : v.sizes) {
        const int64_t room = s > 1 ? (total - 1 - last) / (s - 1) : total;
        v.strides.push_back(in(0, std::max<int64_t>(room, 0)));
        if (s > 1 && room < 0) throw std::logic_error("no room");
        last += (s - 1) * v.strides.back();
      }
      v.offset = in(0, total - 1 - last);
      return v;
    }
    // The tensor may have been made with other sizes than the buffer has now.
    v.sizes = one_of(3) ? Dims{total} : v.buffer;
    v.strides = dense_strides(v.sizes);
    if (one_of(3)) split(v);
    for (int64_t n = in(0, 4); n > 0; --n) change(v);
    return v;
  }

 private:
  // view(): one dimension becomes two.
  void split(View& v) {
    if (v.sizes.empty()) return;
    const int64_t d = in(0, static_cast<int64_t>(v.sizes.size()) - 1);
    for (int64_t k : {2, 3, 5}) {
      if (v.sizes[d] % k) continue;
      v.sizes[d] /= k;
      v.sizes.insert(v.sizes.begin() + d + 1, k);
      v.strides.insert(v.strides.begin() + d + 1, v.strides[d]);
      v.strides[d] *= k;
      return;
    }
  }
  void change(View& v) {
    const int64_t rank = static_cast<int64_t>(v.sizes.size());
    const int64_t d = rank ? in(0, rank - 1) : 0;
    auto erase = [&](int64_t at) {
      v.sizes.erase(v.sizes.begin() + at);
      v.strides.erase(v.strides.begin() + at);
    };
    auto insert = [&](int64_t at, int64_t size, int64_t stride) {
      v.sizes.insert(v.sizes.begin() + at, size);
      v.strides.insert(v.strides.begin() + at, stride);
    };
    switch (in(0, 8)) {
      case 0:  // transpose
        if (rank < 2) return;
        std::swap(v.sizes[d], v.sizes[(d + 1) % rank]);
        std::swap(v.strides[d], v.strides[(d + 1) % rank]);
        return;
      case 1:  // select
        if (rank == 0 || v.sizes[d] == 0) return;
        v.offset += in(0, v.sizes[d] - 1) * v.strides[d];
        return erase(d);
      case 2: {  // narrow
        if (rank == 0 || v.sizes[d] == 0) return;
        const int64_t start = in(0, v.sizes[d] - 1);
        v.offset += start * v.strides[d];
        v.sizes[d] = in(one_of(20) ? 0 : 1, v.sizes[d] - start);
        return;
      }
      case 3: {  // slice with a step
        if (rank == 0 || v.sizes[d] == 0) return;
        const int64_t start = in(0, v.sizes[d] - 1), step = in(1, 4);
        v.offset += start * v.strides[d];
        v.sizes[d] = (v.sizes[d] - start + step - 1) / step;
        v.strides[d] *= step;
        return;
      }
      case 4:  // unsqueeze, with a stride that no element walks
        return insert(rank ? in(0, rank) : 0, 1, in(0, 7));
      case 5:  // expand
        if (rank < 5) insert(rank ? in(0, rank) : 0, in(1, 3), 0);
        return;
      case 6: {  // diagonal
        if (rank < 2 || d == rank - 1) return;
        const int64_t n = std::min(v.sizes[d], v.sizes[d + 1]), stride = v.strides[d] + v.strides[d + 1];
        erase(d + 1);
        v.sizes[d] = n;
        v.strides[d] = stride;
        return;
      }
      case 7: {  // unfold
        if (rank == 0 || rank > 4 || v.sizes[d] == 0) return;
        const int64_t size = in(1, v.sizes[d]), step = in(1, 3);
        insert(rank, size, v.strides[d]);
        v.sizes[d] = (v.sizes[d] - size) / step + 1;
        v.strides[d] *= step;
        return;
      }
      default:  // squeeze
        if (rank > 0 && v.sizes[d] == 1) erase(d);
        return;
    }
  }
  std::mt19937_64 engine_;
};

// The same positions, as the plan tells them.
std::vector<int64_t> planned_positions(const View& v, const ViewPlan& p) {
  if (p.kind == Kind::kGather) {
    View moved = v;
    moved.offset = p.run_time_starts[0];
    return moved.positions();
  }
  std::vector<int64_t> where;
  Dims stride(p.num_segments, 1);
  for (int j = p.num_segments - 1; j > 0; --j) stride[j - 1] = stride[j] * p.extents[j];
  for (int64_t i = 0; i < v.numel(); ++i) {
    Dims index(v.sizes.size());
    int64_t rest = i, at = 0;
    for (size_t d = v.sizes.size(); d-- > 0;) {
      index[d] = rest % v.sizes[d];
      rest /= v.sizes[d];
    }
    for (int j = 0; j < p.num_segments; ++j) at += p.starts[j] * stride[j];
    for (int w = 0; w < p.num_walks; ++w)
      at += index[p.walk_dim[w]] * p.steps[p.walk_segment[w]] * stride[p.walk_segment[w]];
    where.push_back(at);
  }
  return where;
}

void a_plan_takes_the_elements_that_the_strides_say() {
  Random random(1);
  std::map<Kind, int> kinds;
  int whole = 0;
  for (int n = 0; n < 50000; ++n) {
    const View v = random.view();
    const ViewPlan p = v.plan();
    ++kinds[p.kind];
    if (v.numel() == 0) {
      if (p.kind != Kind::kEmpty) fail("not empty: " + v.text());
      continue;
    }
    if (planned_positions(v, p) != v.positions()) fail("wrong: " + v.text());
    const int64_t total = product(v.buffer);
    const bool all = v.numel() == total && !v.overlaps();
    if (p.is_whole && !all) fail("not the whole: " + v.text());
    if (p.kind != Kind::kWindow) continue;
    whole += p.is_whole;
    Dims extents(p.extents.begin(), p.extents.begin() + p.num_segments);
    if (product(extents) != total) fail("segments do not cover the buffer: " + v.text());
    int starts = 0;
    for (int j = 0; j < p.num_segments; ++j) {
      const int64_t span = (p.lengths[j] - 1) * p.steps[j] + 1;
      if (p.starts[j] < 0 || p.starts[j] + span > p.extents[j]) fail("a window out of its segment: " + v.text());
      if (span == p.extents[j]) continue;
      if (starts >= p.num_starts || p.run_time_starts[starts++] != p.starts[j]) fail("wrong starts: " + v.text());
    }
    if (starts != p.num_starts) fail("too many starts: " + v.text());
  }
  // The generator reaches every kind, and few views need a gather.
  CHECK(kinds[Kind::kEmpty] > 100 && kinds[Kind::kGather] > 100 && whole > 100);
  CHECK(kinds[Kind::kWindow] > 3 * kinds[Kind::kGather]);
}

// Of a contiguous buffer, what PyTorch's usual views make: no gather, and only the starts differ
// between positions.
void the_usual_views_are_windows_that_share_a_plan() {
  const Dims buffer = {4, 6, 10};
  auto same = [](const ViewPlan& a, const ViewPlan& b) {
    const size_t n = a.num_segments;
    return a.kind == b.kind && a.num_segments == b.num_segments && a.num_starts == b.num_starts &&
           std::equal(a.extents.begin(), a.extents.begin() + n, b.extents.begin()) &&
           std::equal(a.lengths.begin(), a.lengths.begin() + n, b.lengths.begin()) &&
           std::equal(a.steps.begin(), a.steps.begin() + n, b.steps.begin());
  };
  struct Case {
    Dims sizes, strides;
    std::vector<int64_t> offsets;
  };
  const Case cases[] = {
      {{6, 10}, {10, 1}, {0, 60, 180}},         // x[i]
      {{4, 10}, {60, 1}, {0, 10, 50}},          // x[:, i]
      {{4, 6}, {60, 10}, {0, 1, 9}},            // x[:, :, i]
      {{2, 6, 10}, {60, 10, 1}, {0, 60, 120}},  // x[i:i+2]
      {{4, 6, 5}, {60, 10, 2}, {0, 1}},         // x[..., i::2]
      {{10, 6, 4}, {1, 10, 60}, {0}},           // x.T
      {{4, 2, 3, 10}, {60, 30, 10, 1}, {0}},    // x.view(4, 2, 3, 10)
      {{240}, {1}, {0}},                        // x.flatten()
      {{4, 60}, {60, 1}, {0}},                  // x.flatten(1)
      {{24, 5}, {10, 1}, {0, 3, 5}},            // x.flatten(0, 1)[:, i:i+5]
      {{4, 3, 6, 10}, {60, 0, 10, 1}, {0}},     // x[:, None].expand(4, 3, 6, 10)
  };
  for (const Case& c : cases) {
    const ViewPlan first = plan_view(buffer, c.sizes, c.strides, c.offsets[0]);
    for (int64_t offset : c.offsets) {
      const View v{buffer, c.sizes, c.strides, offset};
      const ViewPlan p = v.plan();
      if (p.kind != Kind::kWindow || !same(p, first) || planned_positions(v, p) != v.positions()) fail(v.text());
    }
  }
}

// One program for several views of one buffer: reads, and the buffer after writes where allowed.
void check_programs(const std::vector<View>& views, std::mt19937_64& engine) {
  const int64_t total = product(views[0].buffer);
  ir::Builder b;
  Array content(ir::DType::kI32, views[0].buffer);
  for (int64_t i = 0; i < total; ++i) content.set<int32_t>(i, static_cast<int32_t>(i + 1));
  std::vector<Array> arguments = {content}, expected;
  const ir::Value buffer = b.parameter(ir::Type(ir::DType::kI32, views[0].buffer));
  ir::Values results;
  for (const View& v : views) {
    const ViewPlan p = v.plan();
    ir::Values starts;
    for (int i = 0; i < p.num_starts; ++i) {
      starts.push_back(b.parameter(ir::Type(ir::DType::kI64, {})));
      arguments.push_back(test::array<int64_t>({}, {p.run_time_starts[i]}));
    }
    const std::vector<int64_t> where = v.positions();
    Array read(ir::DType::kI32, v.sizes);
    for (size_t i = 0; i < where.size(); ++i) read.set<int32_t>(i, content.at<int32_t>(where[i]));
    results.push_back(read_view(buffer, p, v.sizes, v.strides, starts));
    expected.push_back(read);
    if (v.overlaps()) continue;
    Array value(ir::DType::kI32, v.sizes), written = content;
    for (size_t i = 0; i < where.size(); ++i) {
      value.set<int32_t>(i, static_cast<int32_t>(engine() % 100000 + 1000));
      written.set<int32_t>(where[i], value.at<int32_t>(i));
    }
    arguments.push_back(value);
    results.push_back(
        write_view(buffer, p, v.sizes, v.strides, starts, b.parameter(ir::Type(ir::DType::kI32, v.sizes))));
    expected.push_back(written);
  }
  const std::vector<Array> got = test::run(test::compile(b, results), arguments);
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;
    std::string all;
    for (const View& v : views) all += "\n    " + v.text();
    fail("result " + std::to_string(i) + " of" + all + "\n    got " + show(got[i]) + "\n    not " + show(expected[i]));
  }
}

void programs_read_and_write_what_the_strides_say() {
  Random random(2);
  std::mt19937_64 engine(3);
  // Views of one buffer share a program, so that there is little to compile.
  std::map<Dims, std::vector<View>> by_buffer;
  int programs = 0;
  for (int n = 0; n < 4000 && programs < 24; ++n) {
    const View v = random.view();
    if (v.numel() > 400) continue;
    std::vector<View>& views = by_buffer[v.buffer];
    views.push_back(v);
    if (views.size() < 10) continue;
    check_programs(views, engine);
    views.clear();
    ++programs;
  }
  // And each kind in one dimension more than the generator makes.
  check_programs({{{2, 3, 4, 5}, {5, 2, 4, 3}, {1, 60, 5, 20}, 0},
                  {{2, 3, 4, 5}, {3, 2, 2}, {20, 10, 2}, 61},
                  {{2, 3, 4, 5}, {2, 3, 2}, {60, 20, 6}, 3},
                  {{2, 3, 4, 5}, {0, 3}, {60, 20}, 0},
                  {{2, 3, 4, 5}, {}, {}, 77},
                  {{2, 3, 4, 5}, {7, 3}, {3, 1}, 2},
                  {{2, 3, 4, 5}, {7, 4}, {13, 2}, 5},
                  {{2, 3, 4, 5}, {24, 5}, {5, 0}, 1},
                  {{2, 3, 4, 5}, {24, 5}, {1, 24}, 0}},
                 engine);
}

void bytes_stay_when_a_dtype_is_reinterpreted() {
  using D = ir::DType;
  const D dtypes[] = {D::kI8,  D::kUI8,  D::kI16, D::kUI16, D::kI32, D::kUI32, D::kI64,      D::kUI64,
                      D::kF16, D::kBF16, D::kF32, D::kF64,  D::kC64, D::kC128, D::kF8E4M3FN, D::kF8E5M2};
  std::mt19937_64 engine(4);
  for (D from : dtypes) {
    ir::Builder b;
    // 2 x 16 elements, and an odd count of bytes that only a flat view can have.
    std::vector<Array> arguments, expected;
    ir::Values results;
    for (const Dims& dims : {Dims{2, 16}, Dims{16, 3}, Dims{0, 4}, Dims{}}) {
      Array a(from, dims);
      for (std::byte& byte : a.bytes) byte = static_cast<std::byte>(engine());
      arguments.push_back(a);
      const ir::Value v = b.parameter(ir::Type(from, dims));
      for (D to : dtypes) {
        if (a.bytes.size() % ir::size_bytes(to) || (dims.empty() && ir::size_bytes(to) > a.bytes.size())) continue;
        const ir::Value r = reinterpret(v, to);
        results.push_back(r);
        Array e(to, reinterpreted_dims(dims, from, to));
        CHECK(e.bytes.size() == a.bytes.size());
        e.bytes = a.bytes;
        expected.push_back(e);
      }
    }
    const std::vector<Array> got = test::run(test::compile(b, results), arguments);
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] != expected[i])
        fail(std::string(ir::text(from)) + " as " + show(got[i]) + "\n    not " + show(expected[i]));
    }
  }
}

void bools_are_bytes_of_0_and_1() {
  ir::Builder b;
  const Array bools(ir::DType::kI1, {8});
  Array a = bools;
  for (int i = 0; i < 8; ++i) a.set<uint8_t>(i, i % 3 == 0);
  const ir::Value v = b.parameter(ir::Type(ir::DType::kI1, {8}));
  const ir::Value as_i64 = reinterpret(v, ir::DType::kI64);
  const std::vector<Array> got =
      test::run(test::compile(b, {reinterpret(v, ir::DType::kUI8), as_i64, reinterpret(as_i64, ir::DType::kI1)}), {a});
  for (const Array& g : got) CHECK(g.bytes == a.bytes);
}

void reinterpreted_dims_rescale_the_last_one_or_flatten() {
  using D = ir::DType;
  CHECK((reinterpreted_dims(Dims{2, 6}, D::kF32, D::kI32) == Dims{2, 6}));
  CHECK((reinterpreted_dims(Dims{2, 6}, D::kF32, D::kI16) == Dims{2, 12}));
  CHECK((reinterpreted_dims(Dims{2, 6}, D::kF32, D::kF64) == Dims{2, 3}));
  CHECK((reinterpreted_dims(Dims{4, 3}, D::kF32, D::kF64) == Dims{6}));
  CHECK((reinterpreted_dims(Dims{}, D::kF64, D::kF32) == Dims{2}));
}

}  // namespace
}  // namespace tpu::ops

#define TEST(name) {#name, tpu::ops::name}
int main(int argc, char** argv) {
  if (!std::getenv("TORCH_TPU_PLUGIN")) return std::puts("skipped: TORCH_TPU_PLUGIN is not set"), 77;
  return tpu::test::run_all(
      {
          TEST(a_plan_takes_the_elements_that_the_strides_say),
          TEST(the_usual_views_are_windows_that_share_a_plan),
          TEST(programs_read_and_write_what_the_strides_say),
          TEST(bytes_stay_when_a_dtype_is_reinterpreted),
          TEST(bools_are_bytes_of_0_and_1),
          TEST(reinterpreted_dims_rescale_the_last_one_or_flatten),
      },
      argc, argv);
}
