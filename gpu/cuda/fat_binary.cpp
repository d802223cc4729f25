#include "gpu/cuda/fat_binary.hpp"

asm(".section .rodata\n"
    ".balign 16\n"
    ".local mooncaf_fat_binary\n"
    "mooncaf_fat_binary:\n"
    ".incbin \"" MOONCAF_FAT_BINARY
    "\"\n"
    ".previous\n");

extern "C" const char mooncaf_fat_binary[];

namespace mooncaf::cuda {

const void* fat_binary() noexcept { return mooncaf_fat_binary; }

}  // namespace mooncaf::cuda
