// The end of the process, while other threads may still use the device.
#pragma once

namespace tpu::runtime {

// Waits for the work in progress. From then on only the calling thread may start more: another one that
// tries stops there for good, since what the plugin and the interpreter need is about to be destroyed.
void shut_down();

// Stops the calling thread for good after that, unless it is the one that shut down. Called where a thread
// is about to return to the interpreter, which would end it in the midst of C++ frames: an abort.
void stop_if_shut_down();

// What shut_down() waits for while one exists: the start of the device, whatever makes a program (that may
// run Python). Ends with stop_if_shut_down().
class Busy {
 public:
  Busy();
  ~Busy();
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
};

}  // namespace tpu::runtime
