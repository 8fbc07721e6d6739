#include "tpu/ops/op.h"

#include <algorithm>
#include <stdexcept>

namespace tpu::ops {
namespace {
template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;
}  // namespace

double as_double(const Number& n) {
  return std::visit(
      Overloaded{[](std::complex<double> c) { return c.real(); }, [](auto v) { return static_cast<double>(v); }}, n);
}

int64_t as_int(const Number& n) {
  return std::visit(Overloaded{[](std::complex<double> c) { return static_cast<int64_t>(c.real()); },
                               [](auto v) { return static_cast<int64_t>(v); }},
                    n);
}

std::complex<double> as_complex(const Number& n) {
  return std::visit(Overloaded{[](std::complex<double> c) { return c; },
                               [](auto v) { return std::complex<double>(static_cast<double>(v), 0.0); }},
                    n);
}

DType natural_dtype(const Number& n) {
  constexpr DType kinds[] = {DType::kI1, DType::kI64, DType::kF64, DType::kC128};
  return kinds[n.index()];
}

size_t Op::index(Ref a) const {
  if (a.name.empty()) {
    if (a.position < 0 || a.position >= static_cast<int>(arguments_.size())) {
      throw std::logic_error(name_ + ": there is no argument " + std::to_string(a.position));
    }
    return a.position;
  }
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (arguments_[i].name == a.name) return i;
  }
  throw std::logic_error(name_ + ": there is no argument '" + std::string(a.name) + "'");
}

const Argument& Op::argument(Ref a) const { return arguments_[index(a)]; }

const Argument& Op::static_argument(Ref a) const {
  const Argument& arg = argument(a);
  if (arg.runtime) {
    throw std::logic_error(name_ + ": argument '" + arg.name +
                           "' is a run-time operand; list it in static_args to read it");
  }
  return arg;
}

bool Op::has(Ref a) const { return argument(a).kind != Argument::Kind::kNone; }

Value Op::in(Ref a) const {
  const Argument& arg = argument(a);
  if (arg.kind != Argument::Kind::kTensor)
    throw std::logic_error(name_ + ": argument '" + arg.name + "' is not a tensor");
  return arg.tensor;
}

Values Op::list(Ref a) const {
  const Argument& arg = argument(a);
  if (arg.kind != Argument::Kind::kTensorList) {
    throw std::logic_error(name_ + ": argument '" + arg.name + "' is not a tensor list");
  }
  return arg.tensors;
}

Value Op::scalar(Ref a, DType dtype, size_t element) {
  const size_t i = index(a);
  const Argument& arg = arguments_[i];
  if (arg.kind == Argument::Kind::kTensor) return ir::convert(arg.tensor, dtype);
  if (arg.runtime) return context_.scalar_operand(i, element, dtype);
  const Number& n = arg.numbers.at(element);
  const Type type(dtype, {});
  if (ir::is_complex(dtype)) {
    const std::complex<double> c = as_complex(n);
    return ir::constant_complex(builder(), c.real(), c.imag(), type);
  }
  if (const int64_t* v = std::get_if<int64_t>(&n)) return ir::constant(builder(), *v, type);
  if (const bool* v = std::get_if<bool>(&n)) return ir::constant(builder(), int64_t{*v}, type);
  return ir::constant(builder(), as_double(n), type);
}

Value Op::compute(Ref a) {
  const Argument& arg = argument(a);
  if (arg.kind == Argument::Kind::kTensor) return ir::convert(arg.tensor, compute_dtype());
  return scalar(a, compute_dtype());
}

Value Op::x(Ref a) { return x_as(a, compute_dtype()); }

Value Op::x_as(Ref a, DType dtype) {
  const Argument& arg = argument(a);
  const Value v = arg.kind == Argument::Kind::kTensor ? ir::convert(arg.tensor, dtype) : scalar(a, dtype);
  if (!out().is_static()) {
    // The sizes come from whichever operand has them; elementwise ops match 0-d operands themselves.
    for (const Argument& other : arguments_) {
      if (other.kind == Argument::Kind::kTensor && other.tensor.type().bounds() == out().bounds() &&
          !other.tensor.type().is_static()) {
        return ir::broadcast_to(v, other.tensor);
      }
    }
    throw ir::StaticShapeRequired(name_ + ": no operand has the result's bounded shape");
  }
  return ir::broadcast_to(v, out().dims());
}

int64_t Op::integer(Ref a) const { return as_int(static_argument(a).numbers.at(0)); }
int64_t Op::integer(Ref a, int64_t if_none) const { return has(a) ? integer(a) : if_none; }
bool Op::flag(Ref a) const { return integer(a) != 0; }
bool Op::flag(Ref a, bool if_none) const { return has(a) ? flag(a) : if_none; }
double Op::number(Ref a) const { return as_double(static_argument(a).numbers.at(0)); }
double Op::number(Ref a, double if_none) const { return has(a) ? number(a) : if_none; }
std::complex<double> Op::complex_number(Ref a) const { return as_complex(static_argument(a).numbers.at(0)); }
Number Op::raw_number(Ref a) const { return static_argument(a).numbers.at(0); }

Dims Op::ints(Ref a) const {
  Dims d;
  for (const Number& n : static_argument(a).numbers) d.push_back(as_int(n));
  return d;
}

std::vector<double> Op::numbers(Ref a) const {
  std::vector<double> d;
  for (const Number& n : static_argument(a).numbers) d.push_back(as_double(n));
  return d;
}

std::string Op::text(Ref a) const { return argument(a).text; }

std::optional<DType> Op::dtype(Ref a) const {
  const Argument& arg = argument(a);
  if (arg.kind != Argument::Kind::kDType) return std::nullopt;
  return arg.dtype;
}

int64_t Op::dim(Ref a, int64_t rank) const {
  const int64_t d = integer(a);
  return d < 0 ? d + std::max<int64_t>(rank, 1) : d;
}

Dims Op::dims(Ref a, int64_t rank) const {
  Dims d;
  if (has(a)) d = ints(a);
  if (d.empty()) {
    for (int64_t i = 0; i < rank; ++i) d.push_back(i);
    return d;
  }
  if (rank == 0) return {};
  for (int64_t& i : d) i = i < 0 ? i + rank : i;
  std::sort(d.begin(), d.end());
  return d;
}

bool Op::is_zero(Ref a) const { return as_complex(argument(a).numbers.at(0)) == 0.0; }
bool Op::is_one(Ref a) const { return as_complex(argument(a).numbers.at(0)) == 1.0; }

}  // namespace tpu::ops
