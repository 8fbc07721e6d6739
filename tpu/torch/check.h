// Checks that programs make of their data (an index in range): collected while the device works,
// raised at the next read or synchronize.
#pragma once

#include "tpu/torch/program.h"

namespace tpu {

// The program's last output tells what failed: i64 [failed, value] for each of its checks.
void add_pending_checks(ProgramPtr program, runtime::BufferPtr told);
// Raises the first failed check, if any; waits for the runs it belongs to. `line` is the Python line that is to blame,
// where it is known.
void raise_failed_checks(const char* line = nullptr);

}  // namespace tpu
