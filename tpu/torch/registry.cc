// From the op table to the dispatcher: which overloads a row serves, and with which form.
#include "tpu/torch/registry.h"

#include <torch/library.h>

#include <map>
#include <unordered_map>

#include "tpu/runtime/counters.h"
#include "tpu/torch/fallback.h"
#include "tpu/torch/kernel.h"
#include "tpu/torch/lower.h"
#include "tpu/torch/prepare.h"

namespace tpu {
namespace {

using c10::DispatchKey;

struct Entries {
  std::mutex mutex;
  std::unordered_map<c10::OperatorName, std::unique_ptr<OpEntry>> by_name;
  std::vector<const OpEntry*> with_rows;
  std::vector<std::string> problems;
};
Entries& entries() {
  static auto* e = new Entries;
  return *e;
}

bool is_number(c10::TypePtr type) {
  if (auto o = type->cast<c10::OptionalType>()) type = o->getElementType();
  if (auto l = type->cast<c10::ListType>()) type = l->getElementType();
  return type->kind() == c10::TypeKind::NumberType || type->kind() == c10::TypeKind::FloatType;
}

bool is_list(c10::TypePtr type) {
  if (auto o = type->cast<c10::OptionalType>()) type = o->getElementType();
  return type->kind() == c10::TypeKind::ListType;
}

template <typename List>
bool contains(const List& list, const std::string& name) {
  for (const auto& s : list) {
    if (s == name) return true;
  }
  return false;
}

OpEntry& make_entry(const c10::OperatorHandle& op, const ops::Row* row, Form form) {
  Entries& all = entries();
  auto owned = std::make_unique<OpEntry>(op);
  OpEntry& e = *owned;
  e.name = c10::toString(op.operator_name());
  e.row = row;
  e.form = form;
  for (const c10::Argument& a : op.schema().arguments()) {
    ArgumentInfo info;
    info.name = a.name();
    info.is_out = a.is_out();
    info.is_write = a.alias_info() && a.alias_info()->isWrite();
    info.is_number = is_number(a.type());
    info.is_alpha = info.is_number && (a.name() == "alpha" || a.name() == "beta");
    if (row) {
      info.is_write = info.is_write || contains(row->traits.writes, a.name());
      info.is_runtime = (info.is_number && !contains(row->traits.static_args, a.name()) &&
                         (form == Form::kForeach || !is_list(a.type()))) ||
                        contains(row->traits.runtime_args, a.name());
    }
    e.writes = e.writes || info.is_write;
    e.arguments.push_back(std::move(info));
  }
  const std::string& base = op.operator_name().name;
  e.may_overlap = base == "aten::fill_" || base == "aten::zero_" || base == "aten::_foreach_zero_";
  e.prepare = find_prepare(e.name);
  std::lock_guard lock(all.mutex);
  auto [it, fresh] = all.by_name.try_emplace(op.operator_name(), std::move(owned));
  if (row && fresh) all.with_rows.push_back(it->second.get());
  return *it->second;
}

bool same_types(const c10::FunctionSchema& a, const c10::FunctionSchema& b, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (*a.arguments()[i].type() != *b.arguments()[i].type() || a.arguments()[i].name() != b.arguments()[i].name())
      return false;
  }
  return true;
}

bool writes(const c10::FunctionSchema& s) {
  for (const c10::Argument& a : s.arguments()) {
    if (a.alias_info() && a.alias_info()->isWrite()) return true;
  }
  return false;
}

// "add.Tensor" of the table.
std::optional<c10::OperatorHandle> find_op(const std::string& name) {
  const size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchema(
      {"aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
}

// A kernel of ours would take the composite form's place in autograd, too, unless the op has a derivative of its own.
bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(DispatchKey::Autograd);
}

// Drops the programs that were not used since the round before.
void drop_unused_programs() {
  std::vector<ProgramPtr> dropped;  // end after the locks
  Entries& all = entries();
  std::lock_guard lock(all.mutex);
  for (auto& [name, entry] : all.by_name) {
    std::lock_guard entry_lock(entry->mutex);
    std::erase_if(entry->programs, [&](const auto& p) {
      if (p.second->is_used.exchange(false)) return false;
      dropped.push_back(p.second);
      return true;
    });
  }
}

// A process that keeps making programs forgets those that it no longer uses; the disk has them still.
void make_room() {
  static std::mutex one_at_a_time;
  static bool is_marked = false;
  using Room = runtime::Session::Room;
  runtime::Session& session = runtime::Session::get();
  Room room = session.room();
  if (room == Room::kPlenty) return;
  std::lock_guard lock(one_at_a_time);
  // The first round, early, finds nothing unused: it begins the time that use is looked at.
  if (!std::exchange(is_marked, true)) drop_unused_programs();
  if (room != Room::kNone) return;
  drop_unused_programs();
  if (session.room(/*count_now=*/true) != Room::kPlenty) drop_unused_programs();
  session.room(/*count_now=*/true);
  is_marked = false;
}

class Registrar {
 public:
  Registrar()
      : library_(*new torch::Library(torch::Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__, __LINE__)) {
    for (const c10::OperatorName& n : c10::Dispatcher::singleton().getAllOpNames()) {
      if (n.name.rfind("aten::", 0) == 0) overloads_[n.name].push_back(n);
    }
  }

  void rows() {
    for (const ops::Family& family : ops::table()) {
      for (const ops::Row& row : family.rows) {
        const auto op = find_op(row.name);
        if (!op) {
          entries().problems.push_back(std::string(row.name) + " is not an ATen op");
          continue;
        }
        if (is_composite(*op)) {
          entries().problems.push_back(
              std::string(row.name) +
              " is differentiated through its composite form: a kernel would drop its gradient");
          continue;
        }
        add(*op, &row, Form::kFunctional, family.name);
      }
    }
    for (const ops::Family& family : ops::table()) {
      for (const ops::Row& row : family.rows) {
        const auto op = find_op(row.name);
        if (op && !is_composite(*op) && !writes(op->schema())) derive(*op, row, family.name);
      }
    }
    for (auto& [name, list] : overloads_) {
      if (name.rfind("aten::_foreach_", 0) != 0) continue;
      for (const c10::OperatorName& n : list)
        foreach (n);
    }
  }

 private:
  OpEntry* add(const c10::OperatorHandle& op, const ops::Row* row, Form form, std::string_view family) {
    {
      std::lock_guard lock(entries().mutex);
      if (entries().by_name.count(op.operator_name())) return nullptr;
    }
    OpEntry& e = make_entry(op, row, form);
    e.family = family;
    if (row->traits.internal) return &e;
    const std::string name = op.operator_name().name +
                             (op.operator_name().overload_name.empty() ? "" : "." + op.operator_name().overload_name);
    library_.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(e)));
    return &e;
  }

  void derive(const c10::OperatorHandle& functional, const ops::Row& row, std::string_view family) {
    const c10::FunctionSchema& f = functional.schema();
    const size_t n = f.arguments().size();
    const std::string& base = f.operator_name().name;
    auto consider = [&](const c10::OperatorName& name, bool inplace) {
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      if (!op || is_composite(*op)) return;
      const c10::FunctionSchema& s = op->schema();
      size_t outs = 0;
      for (const c10::Argument& a : s.arguments()) outs += a.is_out();
      const bool fits = inplace ? outs == 0 && s.arguments().size() == n && s.arguments()[0].alias_info() &&
                                      s.arguments()[0].alias_info()->isWrite()
                                : outs > 0 && s.arguments().size() == n + outs;
      if (!fits || !same_types(f, s, n)) return;
      if (OpEntry* e = add(*op, &row, inplace ? Form::kInplace : Form::kOut, family)) e->meta = functional;
    };
    for (const c10::OperatorName& name : overloads_[base + "_"]) consider(name, true);
    for (const c10::OperatorName& name : overloads_[base]) consider(name, false);
  }

  void foreach (const c10::OperatorName& n) {
    const auto op = c10::Dispatcher::singleton().findSchema(n);
    if (!op || is_composite(*op)) return;
    const auto& arguments = op->schema().arguments();
    if (arguments.empty() || arguments[0].type()->kind() != c10::TypeKind::ListType) return;
    for (const c10::Argument& a : arguments) {
      if (a.is_out()) return;
    }
    std::string base = n.name.substr(std::string("aten::_foreach_").size());
    if (base.back() == '_') base.pop_back();
    static const std::map<std::string, std::vector<std::string>> preference = {
        {"", {"", "self"}},
        {"Scalar", {"Scalar", "Tensor", "Tensor_Scalar", ""}},
        {"ScalarList", {"Scalar", "Tensor", "Tensor_Scalar", ""}},
        {"List", {"Tensor", "Tensor_Tensor", ""}},
        {"Tensor", {"Tensor"}},
    };
    const auto wanted = preference.find(n.overload_name);
    if (wanted == preference.end() || ((base == "addcmul" || base == "addcdiv") && n.overload_name == "Tensor")) return;
    std::lock_guard lock(entries().mutex);
    for (const std::string& suffix : {std::string(), std::string("_")}) {
      for (const std::string& overload : wanted->second) {
        auto it = entries().by_name.find({"aten::" + base + suffix, overload});
        if (it == entries().by_name.end() || it->second->form != Form::kFunctional || !it->second->row) continue;
        const auto& element = it->second->op.schema().arguments();
        bool fits = arguments.size() <= element.size();
        for (size_t i = 0; fits && i < element.size(); ++i) {
          fits = i < arguments.size()
                     ? !is_list(element[i].type()) && (is_number(arguments[i].type()) || !is_number(element[i].type()))
                     : element[i].default_value().has_value();
        }
        if (!fits || it->second->op.schema().returns().size() != 1) continue;
        OpEntry* element_entry = it->second.get();
        pending_.push_back({*op, element_entry});
        return;
      }
    }
  }

 public:
  void foreach_entries() {
    for (auto& [op, element] : pending_) {
      if (OpEntry* e = add(op, element->row, Form::kForeach, "foreach")) e->element = element;
    }
  }

 private:
  torch::Library& library_;
  std::map<std::string, std::vector<c10::OperatorName>> overloads_;
  std::vector<std::pair<c10::OperatorHandle, OpEntry*>> pending_;
};

}  // namespace

ProgramPtr OpEntry::find(const Key& key) {
  runtime::Counters& count = runtime::counters();
  std::lock_guard lock(mutex);
  const auto it = programs.find(key);
  if (it == programs.end()) {
    count.memory_misses.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  count.memory_hits.fetch_add(1, std::memory_order_relaxed);
  const std::atomic<bool>& is_used = it->second->is_used;
  if (!is_used.load(std::memory_order_relaxed)) it->second->is_used.store(true, std::memory_order_relaxed);
  return it->second;
}

ProgramPtr OpEntry::remember(const Key& key, ProgramPtr program) {
  make_room();
  std::lock_guard lock(mutex);
  return programs.try_emplace(key, std::move(program)).first->second;
}

OpEntry& entry_of(const c10::OperatorHandle& op) {
  {
    std::lock_guard lock(entries().mutex);
    if (auto it = entries().by_name.find(op.operator_name()); it != entries().by_name.end()) return *it->second;
  }
  return make_entry(op, nullptr, Form::kDecomposed);
}

OpEntry& entry_of(const char* name, const char* overload) {
  return entry_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

std::vector<const OpEntry*> registered_entries() {
  std::lock_guard lock(entries().mutex);
  return entries().with_rows;
}

const std::vector<std::string>& table_problems() { return entries().problems; }

void register_ops() {
  static const bool once = [] {
    Registrar registrar;
    registrar.rows();
    registrar.foreach_entries();
    auto* fallback = new torch::Library(torch::Library::IMPL, "_", DispatchKey::PrivateUse1, __FILE__, __LINE__);
    fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback_kernel>());
    return true;
  }();
  (void)once;
}

}  // namespace tpu
