// A function that the C++ library inside of this module wants from the C library, and glibc before 2.36
// lacks.

#include <sys/random.h>

#include <cstdint>

/// For `std::random_device`, which is not used here; the linker does not know that.
extern "C" __attribute__((visibility("hidden"))) std::uint32_t arc4random() noexcept {
  std::uint32_t number = 0;
  while (::getrandom(&number, sizeof(number), 0) != sizeof(number)) {
  }
  return number;
}
