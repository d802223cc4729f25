// What gpu/cuda/simt_plain.hpp declares, on the machine; and what the compiler makes of an access to memory.

#include <array>
#include <cstring>

#include "gpu/cuda/simt.hpp"
#include "gpu/host/dequantize.hpp"
#include "tests/support/simt/machine.hpp"

namespace mooncaf::simt {

namespace {

machine* kernel_runs() { return &machine::running(); }

using slot = machine::slot;

template <class T>
T& as(std::byte* at) {
  return *reinterpret_cast<T*>(at);
}
template <class T>
const T& as(const std::byte* at) {
  return *reinterpret_cast<const T*>(at);
}

const std::array<float, 65536>& half_values() {
  static const auto table = [] {
    std::array<float, 65536> t;
    for (unsigned i = 0; i < t.size(); ++i) t[i] = half_to_float(static_cast<std::uint16_t>(i));
    return t;
  }();
  return table;
}

template <class T>
struct exchange {
  T value;
  unsigned mask;
};

template <class T>
T exchanged(T x, unsigned mask, int line) {
  const exchange<T> mine{x, mask};
  return as<T>(
      kernel_runs()->collect("a shuffle", line, &mine, sizeof mine, [](const slot* all, slot* results) {
        for (unsigned lane = 0; lane < 32; ++lane) {
          const auto from = lane ^ (as<exchange<T>>(all[lane]).mask % 32);
          as<T>(results[lane]) = as<exchange<T>>(all[from]).value;
        }
      }));
}

template <class T>
T added(T* at, T x) {
  kernel_runs()->access_atomically(reinterpret_cast<std::uintptr_t>(at), sizeof(T));
  const T before = *at;
  *at = before + x;
  return before;
}

struct fragments {
  float d[4];
  std::uint32_t a[4];
  std::uint32_t b[2];
};

/// Products are exact and added up in double, rounded once. A tensor core cuts off more than that, and has an
/// order of its own.
void multiply_fragments(const slot* all, slot* results) {
  const auto& half = half_values();
  float a[16][16], b[16][8];
  for (unsigned lane = 0; lane < 32; ++lane) {
    const auto& f = as<fragments>(all[lane]);
    const unsigned group = lane / 4, part = lane % 4;
    for (unsigned i = 0; i < 8; ++i) {
      const auto bits = static_cast<std::uint16_t>(f.a[i / 2] >> 16 * (i % 2));
      a[group + i / 2 % 2 * 8][2 * part + i % 2 + i / 4 * 8] = half[bits];
    }
    for (unsigned i = 0; i < 4; ++i)
      b[2 * part + i % 2 + i / 2 * 8][group] = half[static_cast<std::uint16_t>(f.b[i / 2] >> 16 * (i % 2))];
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = lane / 4 + i / 2 * 8, column = 2 * (lane % 4) + i % 2;
      double sum = as<fragments>(all[lane]).d[i];
      for (unsigned k = 0; k < 16; ++k) sum += static_cast<double>(a[row][k]) * b[k][column];
      as<float>(results[lane] + 4 * i) = static_cast<float>(sum);
    }
  }
}

template <bool Turned>
void spread_matrices(const slot* all, slot* results) {
  const auto element = [&](unsigned matrix, unsigned row, unsigned column) {
    return as<std::uint16_t>(all[8 * matrix + row] + 2 * column);
  };
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned row = lane / 4, column = 2 * (lane % 4);
    for (unsigned m = 0; m < 4; ++m) {
      const std::uint32_t low = Turned ? element(m, column, row) : element(m, row, column);
      const std::uint32_t high = Turned ? element(m, column + 1, row) : element(m, row, column + 1);
      as<std::uint32_t>(results[lane] + 4 * m) = low | high << 16;
    }
  }
}

words4 load_rows(const std::uint16_t* row, const char* what, int line, void (*finish)(const slot*, slot*)) {
  const words4 mine = load16(row);
  return as<words4>(kernel_runs()->collect(what, line, &mine, sizeof mine, finish));
}

}  // namespace

unsigned thread_index() { return kernel_runs()->thread_index(); }
unsigned block_x() { return kernel_runs()->block().x; }
unsigned block_y() { return kernel_runs()->block().y; }
unsigned block_z() { return kernel_runs()->block().z; }

void* shared_array(const char* name, std::size_t bytes) { return kernel_runs()->shared_array(name, bytes); }
void sync_block(int line) { kernel_runs()->barrier(line); }

float shuffle_xor(float x, unsigned mask, int line) { return exchanged(x, mask, line); }
std::uint64_t shuffle_xor(std::uint64_t x, unsigned mask, int line) { return exchanged(x, mask, line); }
std::uint32_t add_atomically(std::uint32_t* at, std::uint32_t x) { return added(at, x); }
std::uint64_t add_atomically(std::uint64_t* at, std::uint64_t x) { return added(at, x); }

void mma_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, int line) {
  const fragments mine{{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  std::memcpy(d, kernel_runs()->collect("a product", line, &mine, sizeof mine, multiply_fragments), sizeof d);
}

words4 load_matrices(const std::uint16_t* row, int line) {
  return load_rows(row, "a load of matrices", line, spread_matrices<false>);
}
words4 load_matrices_turned(const std::uint16_t* row, int line) {
  return load_rows(row, "a load of turned matrices", line, spread_matrices<true>);
}

void copy_async16(void* shared, const void* global, bool there) {
  kernel_runs()->copy_async(shared, global, there);
}
void commit_async() { kernel_runs()->commit_async(); }
template <int Pending>
void wait_async() {
  kernel_runs()->wait_async(Pending);
}
template void wait_async<0>();
template void wait_async<1>();

words4 load16(const void* at) {
  kernel_runs()->access(reinterpret_cast<std::uintptr_t>(at), sizeof(words4), false);
  return *static_cast<const words4*>(at);
}
void store16(void* at, const words4& v) {
  kernel_runs()->access(reinterpret_cast<std::uintptr_t>(at), sizeof(words4), true);
  std::memcpy(at, &v, sizeof v);
}
words2 load8(const void* at) {
  kernel_runs()->access(reinterpret_cast<std::uintptr_t>(at), sizeof(words2), false);
  return *static_cast<const words2*>(at);
}

std::uint16_t half_bits(float x) { return float_to_half(x); }
float half_value(std::uint16_t bits) { return half_values()[bits]; }

}  // namespace mooncaf::simt

#ifndef MOONCAF_UNCHECKED_KERNELS
// GCC's names for "this is about to be read or written".
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define MOONCAF_ACCESS(NAME, BYTES, WRITE)                                                          \
  void __tsan_##NAME(void* at) {                                                                    \
    if (mooncaf::simt::machine::is_running())                                                       \
      mooncaf::simt::machine::running().access(reinterpret_cast<std::uintptr_t>(at), BYTES, WRITE); \
  }
MOONCAF_ACCESS(read1, 1, false)
MOONCAF_ACCESS(read2, 2, false)
MOONCAF_ACCESS(read4, 4, false)
MOONCAF_ACCESS(read8, 8, false)
MOONCAF_ACCESS(read16, 16, false)
MOONCAF_ACCESS(write1, 1, true)
MOONCAF_ACCESS(write2, 2, true)
MOONCAF_ACCESS(write4, 4, true)
MOONCAF_ACCESS(write8, 8, true)
MOONCAF_ACCESS(write16, 16, true)
void __tsan_read_range(void* at, std::size_t bytes) {
  if (mooncaf::simt::machine::is_running())
    mooncaf::simt::machine::running().access(reinterpret_cast<std::uintptr_t>(at), bytes, false);
}
void __tsan_write_range(void* at, std::size_t bytes) {
  if (mooncaf::simt::machine::is_running())
    mooncaf::simt::machine::running().access(reinterpret_cast<std::uintptr_t>(at), bytes, true);
}
}
#endif
