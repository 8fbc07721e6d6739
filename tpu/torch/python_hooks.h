// See python_hooks.cc.
#pragma once

namespace tpu {

void install_python_hooks();

}  // namespace tpu
