// What the CPU says of a call: its kernel runs on stand-ins of the operands, so that wrong calls raise its
// exceptions in its words, also where a Meta kernel looks at less than the CPU's.
#pragma once

#include "tpu/torch/entry.h"

namespace tpu {

// For a call that was refused for some reason of ours: raises what the CPU raises for it. Returns where the CPU
// accepts the call, or the operands are too large to try.
void refuse_as_the_cpu_does(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args);

// For a call that nothing of ours refused, made for the first time with this key: raises what the CPU raises, unless
// that is only the CPU's lack of a kernel or depends on the elements. `result_bytes`: size of the fresh results.
// Larger calls than some megabytes are not tried.
void check_with_the_cpu(const OpEntry& entry, c10::ArrayRef<c10::IValue> args, int64_t result_bytes);

}  // namespace tpu
