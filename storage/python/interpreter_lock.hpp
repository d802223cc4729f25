#pragma once
// The interpreter's lock, let go and taken again by threads that may find the interpreter ending meanwhile.
//
// CPython before 3.14 ends a thread that wants the lock then, by `pthread_exit`, which unwinds the thread's
// stack: through destructors that let nothing out, and by code of this library and of the system's libgcc
// mixed. Either ends the process by a signal. Such a thread stays where it is instead, until the process is
// gone.

#include <Python.h>

namespace mooncaf {

/// Calls `take`, and stays for ever if that would end the thread.
void take_or_stay(void (*take)(void*), void* with);

/// While it lives, this thread does without the lock.
class without_lock {
 public:
  without_lock() : state_{PyEval_SaveThread()} {}
  ~without_lock() {
    take_or_stay([](void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); }, state_);
  }
  without_lock(const without_lock&) = delete;
  without_lock& operator=(const without_lock&) = delete;

 private:
  PyThreadState* state_;
};

/// And while this lives within that, it has it again.
class with_lock {
 public:
  with_lock() {
    take_or_stay([](void* state) { *static_cast<PyGILState_STATE*>(state) = PyGILState_Ensure(); }, &state_);
  }
  ~with_lock() { PyGILState_Release(state_); }
  with_lock(const with_lock&) = delete;
  with_lock& operator=(const with_lock&) = delete;

 private:
  PyGILState_STATE state_{};
};

}  // namespace mooncaf
