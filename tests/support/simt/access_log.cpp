#include "tests/support/simt/access_log.hpp"

#include <sys/mman.h>

#include <new>

namespace mooncaf::simt {

access_log::access_log(std::size_t bytes) : count_(bytes / 2 + 1) {
  void* at = ::mmap(nullptr, count_ * sizeof(cell), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc{};
  cells_ = static_cast<cell*>(at);
}

access_log::~access_log() { ::munmap(cells_, count_ * sizeof(cell)); }

bool access_log::conflicts(const mark& m, const moment& now) {
  if (m.block == several) return m.barrier == now.launch;
  if (m.block < now.launch) return false;
  if (m.block != now.block) return true;
  return m.barrier == in_flight || (m.barrier == now.barrier && m.thread != now.thread);
}

access_log::verdict access_log::read(std::size_t at, std::size_t bytes, const moment& now,
                                     std::uint32_t& other) {
  for (auto i = at / 2; 2 * i < at + bytes; ++i) {
    auto& c = cells_[i];
    other = c.write.thread;
    if (conflicts(c.write, now))
      return c.write.barrier == in_flight ? verdict::on_its_way : verdict::races_with_write;
    auto& r = c.read;
    if (r.block == several && r.barrier == now.launch) continue;
    if (r.block != several && r.block >= now.launch && r.block != now.block)
      r = {several, now.launch, several};
    else if (r.block == now.block && r.barrier == now.barrier && r.thread != now.thread) r.thread = several;
    else r = {now.block, now.barrier, now.thread};
  }
  return verdict::fine;
}

access_log::verdict access_log::write(std::size_t at, std::size_t bytes, const moment& now,
                                      std::uint32_t& other) {
  for (auto i = at / 2; 2 * i < at + bytes; ++i) {
    auto& c = cells_[i];
    other = c.write.thread;
    if (conflicts(c.write, now))
      return c.write.barrier == in_flight ? verdict::on_its_way : verdict::races_with_write;
    other = c.read.thread;
    if (conflicts(c.read, now)) return verdict::races_with_read;
    c.write = {now.block, now.barrier, now.thread};
  }
  return verdict::fine;
}

access_log::verdict access_log::begin_copy(std::size_t at, std::size_t bytes, const moment& now,
                                           std::uint32_t& other) {
  const auto seen = write(at, bytes, now, other);
  for (auto i = at / 2; seen == verdict::fine && 2 * i < at + bytes; ++i) cells_[i].write.barrier = in_flight;
  return seen;
}

void access_log::land(std::size_t at, std::size_t bytes, const moment& now) {
  for (auto i = at / 2; 2 * i < at + bytes; ++i) cells_[i].write = {now.block, now.barrier, now.thread};
}

bool access_log::written(std::size_t at, std::size_t bytes, const moment& now) const {
  for (auto i = at / 2; 2 * i < at + bytes; ++i)
    if (cells_[i].write.block != now.block) return false;
  return true;
}

}  // namespace mooncaf::simt
