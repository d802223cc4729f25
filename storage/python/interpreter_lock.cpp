// Built without exceptions: then a cleanup handler is where the C library jumps to when it ends a thread, and
// nothing of this library has to know how to unwind.

#include "storage/python/interpreter_lock.hpp"

#include <pthread.h>
#include <unistd.h>

namespace mooncaf {

void take_or_stay(void (*take)(void*), void* with) {
  const auto stay = [](void*) {
    for (;;) ::pause();
  };
  pthread_cleanup_push(stay, nullptr);
  take(with);
  pthread_cleanup_pop(0);
}

}  // namespace mooncaf
