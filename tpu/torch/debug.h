// Debug mode: every op waits for its results, so that an error is raised by the call that made it.
#pragma once

#include <string>

namespace tpu {

// TORCH_TPU_LAUNCH_BLOCKING=1, or what was set since.
bool launch_blocking();
void set_launch_blocking(bool blocks);

// A copy that is never freed; equal texts are one.
const char* interned(std::string text);

// "file.py:12 in name" of the innermost Python call on this thread that is not torch's own; in a backward pass, which
// runs on a thread without Python, the autograd node. Null where neither is known. Takes the GIL. Never freed: equal
// lines are one pointer.
const char* calling_line();
// " (called at ...)", or nothing.
std::string called_at(const char* line);

// What a call that waits for the device's values does besides: nothing (0), warns (1) or raises (2).
int sync_debug_mode();
void set_sync_debug_mode(int mode);
// Said by whatever is about to wait.
void about_to_wait();

// Of the Python module: the words of calling_line, or none.
void set_python_line_hook(std::string (*hook)());

}  // namespace tpu
