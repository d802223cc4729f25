#include "tests/support/simt/machine.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <set>

namespace mooncaf::simt {

namespace {

/// What a block may have without asking the driver for more.
constexpr std::size_t shared_capacity = 48 << 10;
/// Between allocations, and between shared arrays, so that a step too far is seen.
constexpr std::size_t global_gap = 256, shared_gap = 32;
/// Kernels' arrays have 16-byte elements at most.
constexpr std::size_t shared_room = shared_capacity + 16 * (shared_gap + 16);

thread_local machine* on_this_processor = nullptr;  // two GPUs compute on a thread each

std::string hex(std::uintptr_t at) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(at));
  return text;
}

}  // namespace

machine::machine(std::size_t capacity_bytes, bool reached_by_nics)
    : capacity_(capacity_bytes),
      closed_(reached_by_nics ? PROT_READ | PROT_WRITE : PROT_NONE),
      global_log_(capacity_bytes),
      shared_log_(shared_room) {
  void* at = ::mmap(nullptr, capacity_, closed_, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc{};
  memory_ = static_cast<std::byte*>(at);
  shared_ = static_cast<std::byte*>(std::aligned_alloc(64, (shared_room + 63) / 64 * 64));
}

machine::~machine() {
  ::munmap(memory_, capacity_);
  std::free(shared_);
}

std::byte* machine::allocate(std::size_t bytes) {
  const std::lock_guard lock{mutex_};
  if (bytes > capacity_) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory_);
  auto at = begin;
  for (const auto& [taken, size] : taken_) {
    if (taken - at >= bytes + global_gap && taken > at) break;
    at = (taken + size + 2 * global_gap - 1) / global_gap * global_gap;
  }
  if (at + bytes + global_gap > begin + capacity_) return nullptr;
  taken_[at] = bytes;
  auto* made = reinterpret_cast<std::byte*>(at);
  // Whole pages that nobody else has a part of begin as zeros; small ones with what is a NaN in every type.
  if (bytes <= std::size_t{1} << 20) {
    ::mprotect(memory_, capacity_, PROT_READ | PROT_WRITE);
    std::memset(made, 0xFF, bytes);
    ::mprotect(memory_, capacity_, closed_);
  }
  return made;
}

void machine::release(std::byte* memory) {
  const std::lock_guard lock{mutex_};
  taken_.erase(reinterpret_cast<std::uintptr_t>(memory));
  last_bytes_ = 0;
}

bool machine::pin(std::span<std::byte> memory) {
  const std::lock_guard lock{mutex_};
  const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
  return pinned_.emplace(at, pinned_range{memory.size(), std::make_unique<access_log>(memory.size())}).second;
}

bool machine::unpin(const std::byte* memory) {
  const std::lock_guard lock{mutex_};
  return pinned_.erase(reinterpret_cast<std::uintptr_t>(memory)) == 1;
}

void machine::copy(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock{mutex_};
  for (const auto* side : {static_cast<const std::byte*>(to), static_cast<const std::byte*>(from)}) {
    const auto at = reinterpret_cast<std::uintptr_t>(side);
    if (at - reinterpret_cast<std::uintptr_t>(memory_) >= capacity_) continue;
    auto next = taken_.upper_bound(at);
    if (next == taken_.begin() || (--next, at + bytes > next->first + next->second))
      throw kernel_fault("a copy of " + std::to_string(bytes) + " bytes at " + hex(at) +
                         ", which is not allocated");
  }
  ::mprotect(memory_, capacity_, PROT_READ | PROT_WRITE);
  std::memcpy(to, from, bytes);
  ::mprotect(memory_, capacity_, closed_);
}

void machine::launch(const char* name, kernel_entry_fn entry, std::span<const std::byte> params,
                     unsigned threads, dimensions grid) {
  const std::lock_guard lock{mutex_};
  if (threads == 0 || threads > 1024 || threads % 32 != 0)
    throw kernel_fault(std::string{name} + ": blocks of " + std::to_string(threads) + " threads");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535)
    throw kernel_fault(std::string{name} + ": an impossible grid");
  kernel_ = name;
  entry_ = entry;
  params_.assign(params.begin(), params.end());
  threads_ = threads;
  while (states_.size() < threads) states_.push_back(std::make_unique<thread_state>());
  warps_.resize(std::max<std::size_t>(warps_.size(), threads / 32));
  fault_.clear();
  ++launches_;
  now_.launch = now_.block + 1;
  const auto blocks = std::size_t{grid.x} * grid.y * grid.z;
  ::mprotect(memory_, capacity_, PROT_READ | PROT_WRITE);
  on_this_processor = this;
  for (std::size_t i = 0; i < blocks && fault_.empty(); ++i) {
    const auto b = launches_ % 2 == 0 ? i : blocks - 1 - i;
    block_ = {static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
              static_cast<unsigned>(b / grid.x / grid.y)};
    ++now_.block;
    now_.barrier = 0;
    run_block();
  }
  on_this_processor = nullptr;
  ::mprotect(memory_, capacity_, closed_);
  if (!fault_.empty()) throw kernel_fault(std::string{name} + ": " + fault_);
}

machine& machine::running() { return *on_this_processor; }
bool machine::is_running() { return on_this_processor != nullptr; }

void machine::thread_main(void* self) {
  auto& m = *static_cast<machine*>(self);
  m.entry_(m.params_.data());
  m.wait_here(standing::ended, "its end", 0);
}

void machine::run_block() {
  ranges_.clear();
  for (unsigned i = 0; i < threads_; ++i) {
    auto& t = *states_[i];
    t.at = standing::ready;
    t.copies.clear();
    t.groups = 0;
    t.runs.start(&machine::thread_main, this);
  }
  for (auto& w : warps_) w.arrived = 0;
  while (fault_.empty() && run_ready()) {
  }
}

/// Runs every thread that can; false when the block is over.
bool machine::run_ready() {
  bool ran = false;
  for (unsigned w = 0; w < threads_ / 32; ++w) {
    const auto warp = (w + launches_) % (threads_ / 32);
    for (bool again = true; again;) {
      again = false;
      for (unsigned i = 32 * warp; i < 32 * warp + 32; ++i) {
        if (states_[i]->at != standing::ready) continue;
        again = ran = true;
        current_ = i;
        states_[i]->runs.resume(&scheduler_);
        if (!fault_.empty()) return false;
      }
    }
  }
  return ran || open_barrier();
}

/// Nobody can run: the block is at a barrier, or over, or in trouble.
bool machine::open_barrier() {
  const auto& first = *states_[0];
  for (unsigned i = 1; i < threads_; ++i) {
    const auto& t = *states_[i];
    if (t.at == first.at && t.at != standing::in_warp && t.line == first.line) continue;
    fault_ = "threads of block (" + std::to_string(block_.x) + ", " + std::to_string(block_.y) + ", " +
             std::to_string(block_.z) + ") wait for each other: " + where(0) + ", " + where(i);
    return false;
  }
  if (first.at != standing::at_barrier) return false;
  ++now_.barrier;
  for (unsigned i = 0; i < threads_; ++i) states_[i]->at = standing::ready;
  return true;
}

std::string machine::where(unsigned thread) const {
  const auto& t = *states_[thread];
  return "thread " + std::to_string(thread) + " is at " + t.what +
         (t.line == 0 ? "" : " of line " + std::to_string(t.line));
}

void machine::wait_here(standing how, const char* what, int line) {
  auto& t = *states_[current_];
  t.at = how;
  t.what = what;
  t.line = line;
  t.runs.leave(scheduler_);
}

void machine::fault(const std::string& what) {
  fault_ = "thread " + std::to_string(current_) + " of block (" + std::to_string(block_.x) + ", " +
           std::to_string(block_.y) + ", " + std::to_string(block_.z) + ") " + what;
  states_[current_]->runs.leave(scheduler_);
  std::abort();  // nobody resumes a thread that broke a rule
}

void* machine::shared_array(const char* name, std::size_t bytes) {
  std::size_t end = 0, sum = bytes;
  for (const auto& r : ranges_) {
    if (std::strcmp(r.name, name) == 0) return shared_ + r.at;
    end = (r.at + r.bytes + shared_gap + 15) / 16 * 16;
    sum += r.bytes;
  }
  if (sum > shared_capacity) fault("asks for " + std::to_string(sum) + " bytes of shared memory");
  ranges_.push_back({name, end, bytes});
  return shared_ + end;
}

void machine::barrier(int line) { wait_here(standing::at_barrier, "the barrier", line); }

const std::byte* machine::collect(const char* what, int line, const void* mine, std::size_t bytes,
                                  void (*finish)(const slot* all, slot* results)) {
  auto& w = warps_[current_ / 32];
  const auto lane = current_ % 32, parity = w.parity;
  if (w.arrived == 0) {
    w.what = what;
    w.line = line;
  } else if (w.what != what || w.line != line) {
    fault(std::string{"is in "} + what + " of line " + std::to_string(line) +
          ", other lanes of its warp in " + w.what + " of line " + std::to_string(w.line));
  }
  std::memcpy(w.in[parity][lane], mine, bytes);
  if (++w.arrived < 32) {
    wait_here(standing::in_warp, what, line);
    return w.out[parity][lane];
  }
  finish(w.in[parity], w.out[parity]);
  w.arrived = 0;
  w.parity ^= 1;
  for (unsigned i = current_ - lane; i < current_ - lane + 32; ++i) states_[i]->at = standing::ready;
  return w.out[parity][lane];
}

access_place machine::find(std::uintptr_t at, std::size_t bytes, bool write) {
  if (states_[current_]->runs.has(at)) return {};
  if (!write && at - reinterpret_cast<std::uintptr_t>(params_.data()) < params_.size()) return {};
  if (const auto offset = at - reinterpret_cast<std::uintptr_t>(shared_); offset < shared_room) {
    for (const auto& r : ranges_)
      if (offset >= r.at && offset + bytes <= r.at + r.bytes) return {&shared_log_, offset, true};
    const auto near =
        std::find_if(ranges_.rbegin(), ranges_.rend(), [&](const shared_range& r) { return r.at <= offset; });
    fault("is outside shared memory: byte " + std::to_string(offset - near->at) + " of " + near->name +
          ", which has " + std::to_string(near->bytes));
  }
  if (auto next = pinned_.upper_bound(at); next != pinned_.begin()) {
    const auto& [begin, range] = *--next;
    if (at + bytes <= begin + range.bytes) return {range.log.get(), at - begin, false};
  }
  if (last_bytes_ == 0 || at < last_at_ || at + bytes > last_at_ + last_bytes_) {
    auto next = taken_.upper_bound(at);
    if (next == taken_.begin()) fault("is outside the device's memory: " + hex(at));
    --next;
    if (at + bytes > next->first + next->second)
      fault("is outside the device's memory: " + std::to_string(at - next->first) + " bytes into " +
            std::to_string(next->second));
    last_at_ = next->first;
    last_bytes_ = next->second;
  }
  return {&global_log_, at - reinterpret_cast<std::uintptr_t>(memory_), false};
}

/// No block meets another in shared memory.
moment machine::moment_of(const access_place& place) const {
  auto when = now_;
  if (place.shared) when.launch = when.block;
  return when;
}

void machine::access(std::uintptr_t at, std::size_t bytes, bool write) {
  now_.thread = current_;
  const auto place = find(at, bytes, write);
  if (place.log != nullptr) touch(place, at, bytes, write);
}

void machine::access_atomically(std::uintptr_t at, std::size_t bytes) {
  const auto place = find(at, bytes, true);
  if (!place.shared) fault("adds atomically to memory that is not shared");
  if (!place.log->written(place.at, bytes, now_)) fault("adds to shared memory that nobody has written");
  now_.thread = access_log::atomically;
  touch(place, at, bytes, true);
}

void machine::touch(const access_place& place, std::uintptr_t at, std::size_t bytes, bool write) {
  if (bytes <= 16 && at % bytes != 0)
    fault("is at an address that is no multiple of its " + std::to_string(bytes) + " bytes");
  const char* const memory = place.shared ? "shared" : "global";
  std::uint32_t other = 0;
  const auto when = moment_of(place);
  const auto seen =
      write ? place.log->write(place.at, bytes, when, other) : place.log->read(place.at, bytes, when, other);
  const auto whom = other == access_log::atomically ? " several threads at once"
                    : other == ~std::uint32_t{0}    ? " thread of several"
                                                    : " thread " + std::to_string(other);
  switch (seen) {
    case access_log::verdict::fine:
      break;
    case access_log::verdict::races_with_write:
      fault(std::string{write ? "writes " : "reads "} + memory + " memory in a race with a write of" + whom);
    case access_log::verdict::races_with_read:
      fault(std::string{"writes "} + memory + " memory in a race with a read of" + whom);
    case access_log::verdict::on_its_way:
      fault(std::string{write ? "writes" : "reads"} + " where a copy of" + whom + " was not waited for");
  }
  if (place.shared && !write && !place.log->written(place.at, bytes, now_))
    fault("reads shared memory that nobody has written");
}

void machine::copy_async(void* shared, const void* global, bool there) {
  auto& t = *states_[current_];
  async_copy c{static_cast<std::byte*>(shared), {}, t.groups};
  if (there) {
    access(reinterpret_cast<std::uintptr_t>(global), 16, false);
    std::memcpy(c.data, global, 16);
  }
  const auto at = reinterpret_cast<std::uintptr_t>(shared);
  access(at, 16, true);  // what a plain write must not do, this must not either
  const auto place = find(at, 16, true);
  if (!place.shared) fault("copies asynchronously to memory that is not shared");
  std::uint32_t other = 0;
  place.log->begin_copy(place.at, 16, moment_of(place), other);
  t.copies.push_back(c);
}

void machine::commit_async() { ++states_[current_]->groups; }

void machine::wait_async(int pending) {
  auto& t = *states_[current_];
  now_.thread = current_;
  const auto arrived = [&](const async_copy& c) {
    return c.group + static_cast<unsigned>(pending) < t.groups;
  };
  for (const auto& c : t.copies) {
    if (!arrived(c)) continue;
    std::memcpy(c.to, c.data, 16);
    shared_log_.land(static_cast<std::size_t>(c.to - shared_), 16, now_);
  }
  std::erase_if(t.copies, arrived);
}

}  // namespace mooncaf::simt
