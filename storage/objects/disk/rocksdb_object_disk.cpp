#include "storage/objects/disk/rocksdb_object_disk.hpp"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "runtime/base/posix.hpp"
#include "runtime/base/replace_file.hpp"
#include "storage/objects/wire/store_wire.hpp"
#include "transport/net/handshake.hpp"

namespace mooncaf {

namespace {

constexpr std::uint64_t chunk_bytes = 1 * MiB;
/// Written in one go: large enough for the tier to skip its log, and a read waits for no longer than that.
constexpr std::uint64_t write_turn_bytes = 32 * MiB;
constexpr std::uint64_t read_turn_bytes = 64 * MiB;
constexpr std::uint8_t note_version = 1;

std::int64_t wall_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::int64_t wall_deadline(duration from_now) {
  if (from_now.count() <= 0) return 0;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(from_now).count();
  return wall_now() + std::min<std::int64_t>(ns, std::numeric_limits<std::int64_t>::max() / 4);
}

duration left_until(std::int64_t deadline) {
  return deadline == 0 ? duration{} : duration{std::chrono::nanoseconds{deadline - wall_now()}};
}

block_key key_of(std::uint64_t ticket, std::uint32_t chunk) {
  const std::uint64_t both[] = {ticket, chunk};
  return hash_bytes128(std::as_bytes(std::span{both}));
}

template <class Byte>
std::uint64_t size_of(const std::vector<std::span<Byte>>& pieces) {
  std::uint64_t n = 0;
  for (const auto& p : pieces) n += p.size();
  return n;
}

/// The memory of a chunk: several spans where pieces end within it.
template <class Byte>
std::vector<std::span<Byte>> chunk_of(const std::vector<std::span<Byte>>& pieces, std::uint32_t chunk) {
  std::vector<std::span<Byte>> all;
  auto at = chunk * chunk_bytes, left = chunk_bytes;
  for (const auto& p : pieces) {
    if (at >= p.size()) {
      at -= p.size();
      continue;
    }
    const auto n = std::min<std::uint64_t>(left, p.size() - at);
    all.push_back(p.subspan(at, n));
    left -= n;
    at = 0;
    if (left == 0) break;
  }
  return all;
}

std::uint64_t checksum_of(const object_disk::source& pieces) {
  if (pieces.size() == 1) return checksum64(pieces.front());
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (const auto& p : pieces) XXH3_64bits_update(&hash, p.data(), p.size());
  return XXH3_64bits_digest(&hash);
}

std::uint32_t chunks_of(std::uint64_t size) {
  return static_cast<std::uint32_t>((size + chunk_bytes - 1) / chunk_bytes);
}

}  // namespace

// Objects of which a chunk is missing were being written when the process ended: they are erased.
result<std::unique_ptr<rocksdb_object_disk>> rocksdb_object_disk::open(rocksdb_object_disk_options options) {
  std::unique_ptr<rocksdb_object_disk> made{new rocksdb_object_disk(std::move(options))};
  rocksdb_tier_options tier;
  tier.path = made->options_.path;
  tier.block_bytes = chunk_bytes;
  tier.any_size = true;
  tier.fingerprint = hash_text128("mooncaf objects 1");
  tier.capacity_blocks = made->options_.bytes / chunk_bytes + 64;
  tier.direct_io = made->options_.direct_io;
  tier.pack = made->options_.pack;
  tier.read_threads = 8;
  tier.own_process = made->options_.own_process;
  tier.log = made->options_.log;
  std::map<std::uint64_t, std::vector<block_key>> found;
  auto opened = rocksdb_tier::open(std::move(tier), [&](const listed_block& b) { made->take(b, found); });
  if (!opened) return fail(opened.error());
  made->tier_ = std::move(*opened);
  // Chunks of objects that were being written, or erased, when the process was killed.
  std::vector<block_key> broken;
  for (const auto& [ticket, chunks] : found) {
    const auto held = made->held_.find(ticket);
    if (held != made->held_.end() && held->second.chunks == chunks.size()) continue;
    if (held != made->held_.end()) made->held_.erase(held);
    broken.insert(broken.end(), chunks.begin(), chunks.end());
  }
  if (auto erased = made->tier_->erase(broken); !erased)
    made->say("cannot erase: " + to_string(erased.error()));
  if (auto ok = made->read_identity(); !ok) return fail(ok.error());
  made->worker_ = std::thread{[self = made.get()] { self->work(); }};
  return made;
}

rocksdb_object_disk::~rocksdb_object_disk() {
  {
    std::lock_guard lock{mutex_};
    stopping_ = true;
    loads_.clear();
    saves_.clear();
    report_ = {};
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
}

void rocksdb_object_disk::say(const std::string& line) const {
  if (options_.log) options_.log("objects in " + options_.path + ": " + line);
}

/// @param found  chunks by ticket
void rocksdb_object_disk::take(const listed_block& b,
                               std::map<std::uint64_t, std::vector<block_key>>& found) {
  const auto ticket = b.name.parent.high;  // where a chunk's name has it
  found[ticket].push_back(b.name.key);
  if (b.note.empty()) return;
  byte_reader in{std::as_bytes(std::span{b.note.data(), b.note.size()})};
  const auto version = in.get<std::uint8_t>();
  kept k;
  k.soft_until = in.get<std::int64_t>();
  k.ttl_until = in.get<std::int64_t>();
  k.record = store_wire::get_record(in);
  k.chunks = chunks_of(k.record.size);
  const bool good = in.ok() && version == note_version && k.record.ticket == ticket && k.record.published &&
                    b.name.depth == 0 && k.record.size > 0;
  if (good) held_.emplace(ticket, std::move(k));
}

// ---- which store the objects belong to

result<void> rocksdb_object_disk::read_identity() {
  std::ifstream file{options_.path + "/identity"};
  std::string disk, store;
  const auto parse = [](const std::string& text) -> std::uint64_t {
    const bool hex = text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
    return hex ? std::stoull(text, nullptr, 16) : 0;
  };
  if (file >> disk >> store) {
    number_ = parse(disk);
    store_ = parse(store);
  }
  if (number_ != 0) return {};
  const auto fresh = make_random_u64();
  if (!fresh) return fail(fresh.error());
  number_ = *fresh | 1;
  store_ = 0;
  return write_identity();
}

result<void> rocksdb_object_disk::write_identity() {
  char text[40];
  std::snprintf(text, sizeof text, "%016llx %016llx\n", static_cast<unsigned long long>(number_),
                static_cast<unsigned long long>(store_));
  return replace_file(options_.path + "/identity", text, 0600);
}

std::vector<segment_record> rocksdb_object_disk::contents() {
  std::lock_guard lock{mutex_};
  std::vector<segment_record> all;
  for (const auto& [ticket, k] : held_) {
    auto& r = all.emplace_back(k.record);
    r.soft_pin_for = std::max(left_until(k.soft_until), duration{});
    if (k.ttl_until != 0) r.ttl = std::max(left_until(k.ttl_until), duration{1});
  }
  return all;
}

/// The number is written down when nothing of another store is left: a kill in between leaves that store's.
void rocksdb_object_disk::start_over(std::uint64_t store) {
  std::vector<std::uint64_t> all;
  {
    std::lock_guard lock{mutex_};
    for (const auto& [ticket, k] : held_) all.push_back(ticket);
  }
  if (!all.empty()) say("erases " + std::to_string(all.size()) + " objects that count no more");
  for (const auto ticket : all) erase(ticket);
  store_ = store;
  after_erasures([this] {
    if (const auto ok = write_identity(); !ok) say(to_string(ok.error()));
  });
}

void rocksdb_object_disk::renumber(std::uint64_t store) {
  if (std::exchange(store_, store) == store) return;
  if (const auto ok = write_identity(); !ok) say(to_string(ok.error()));
}

/// Objects of the folder as a whole were saved for a directory in one shard.
result<std::unique_ptr<object_disk>> rocksdb_object_disk::part(std::uint32_t shard, std::uint32_t shards) {
  if (store_ != 0) start_over(0);
  auto own = options_;
  own.path += "/shard-" + std::to_string(shard + 1) + "-of-" + std::to_string(shards);
  own.bytes /= shards;
  auto opened = open(std::move(own));
  if (!opened) return fail(opened.error());
  return std::unique_ptr<object_disk>{std::move(*opened)};
}

// ---- work ----

void rocksdb_object_disk::begin_work(std::function<void(std::span<const outcome>)> report) {
  std::lock_guard lock{mutex_};
  report_ = std::move(report);
}

void rocksdb_object_disk::end_work() {
  std::unique_lock lock{mutex_};
  loads_.clear();
  saves_.clear();
  report_ = {};
  changed_.wait(lock, [&] { return !busy_; });
}

void rocksdb_object_disk::save(const segment_record& object, source bytes) {
  std::lock_guard lock{mutex_};
  saves_.push_back({object, std::move(bytes)});
  changed_.notify_all();
}

void rocksdb_object_disk::load(std::uint64_t ticket, target into) {
  std::lock_guard lock{mutex_};
  loads_.push_back({ticket, std::move(into)});
  changed_.notify_all();
}

void rocksdb_object_disk::erase(std::uint64_t ticket) {
  std::lock_guard lock{mutex_};
  std::erase_if(saves_, [&](const save_job& j) { return j.object.ticket == ticket; });
  erasures_.emplace_back(ticket);
  changed_.notify_all();
}

void rocksdb_object_disk::after_erasures(std::function<void()> then) {
  {
    std::lock_guard lock{mutex_};
    erasures_.emplace_back(std::move(then));
  }
  changed_.notify_all();
}

void rocksdb_object_disk::work() {
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock,
                  [&] { return stopping_ || !loads_.empty() || !erasures_.empty() || !saves_.empty(); });
    if (stopping_ && erasures_.empty()) return;
    busy_ = true;
    turn(lock);
    busy_ = false;
    changed_.notify_all();
  }
}

/// Reads go first, since a client waits for them; then a bounded part of everything else.
void rocksdb_object_disk::turn(std::unique_lock<std::mutex>& lock) {
  std::vector<load_job> loads;
  for (std::uint64_t bytes = 0; !loads_.empty() && bytes < read_turn_bytes; loads_.pop_front()) {
    bytes += size_of(loads_.front().into);
    loads.push_back(std::move(loads_.front()));
  }
  std::vector<erasure> erasures{std::move_iterator{erasures_.begin()}, std::move_iterator{erasures_.end()}};
  erasures_.clear();
  std::vector<save_job> saves;
  for (std::uint64_t bytes = 0; loads_.empty() && !saves_.empty() && bytes < write_turn_bytes;
       saves_.pop_front()) {
    bytes += size_of(saves_.front().bytes);
    saves.push_back(std::move(saves_.front()));
  }
  const auto report = report_;
  lock.unlock();
  do_loads(loads, report);
  do_erasures(erasures);
  const auto saved = do_saves(saves);
  if (report && !saved.empty()) report(saved);
  lock.lock();
}

namespace {

/// Reports the results of several threads: each reports at once, unless another is reporting, which then
/// reports that result, too.
class joint_report {
 public:
  explicit joint_report(const std::function<void(std::span<const object_disk::outcome>)>& to) : to_(to) {}
  void add(const object_disk::outcome& one) {
    if (!to_) return;
    std::unique_lock lock{mutex_};
    unsaid_.push_back(one);
    if (std::exchange(saying_, true)) return;
    while (!unsaid_.empty()) {
      const auto now = std::exchange(unsaid_, {});
      lock.unlock();
      to_(now);
      lock.lock();
    }
    saying_ = false;
  }

 private:
  const std::function<void(std::span<const object_disk::outcome>)>& to_;
  std::mutex mutex_;
  std::vector<object_disk::outcome> unsaid_;
  bool saying_ = false;
};

}  // namespace

/// Each object is reported as soon as all of it is there.
void rocksdb_object_disk::do_loads(std::span<const load_job> jobs,
                                   const std::function<void(std::span<const outcome>)>& report) {
  struct chunk {
    std::size_t job;
    target pieces;
    std::vector<std::byte> whole;  ///< memory to read into where the target lies in several pieces
  };
  std::vector<get_item> items;
  std::vector<chunk> chunks;
  std::vector<std::atomic<std::uint32_t>> missing(jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    missing[i] = chunks_of(size_of(jobs[i].into));
    for (std::uint32_t n = 0; n < missing[i]; ++n) {
      auto& c = chunks.emplace_back(chunk{i, chunk_of(jobs[i].into, n), {}});
      if (c.pieces.size() > 1) c.whole.resize(size_of(c.pieces));
      items.push_back(
          {key_of(jobs[i].ticket, n), c.pieces.size() > 1 ? std::span{c.whole} : c.pieces.front()});
    }
  }
  joint_report said{report};
  static_cast<void>(tier_->multi_get(items, [&](std::size_t item) {
    auto& c = chunks[item];
    for (std::size_t at = 0; const auto piece : c.pieces) {
      if (!c.whole.empty()) std::memcpy(piece.data(), c.whole.data() + at, piece.size());
      at += piece.size();
    }
    const auto i = c.job;
    if (missing[i].fetch_sub(1) == 1) said.add({jobs[i].ticket, true});
  }));
  for (std::size_t i = 0; i < jobs.size(); ++i)
    if (missing[i] != 0) said.add({jobs[i].ticket, false});
}

void rocksdb_object_disk::do_erasures(std::span<const erasure> jobs) {
  std::vector<block_key> keys;
  {
    std::lock_guard lock{mutex_};
    for (const auto& j : jobs) {
      const auto* const ticket = std::get_if<std::uint64_t>(&j);
      const auto found = ticket ? held_.find(*ticket) : held_.end();
      if (found == held_.end()) continue;
      for (std::uint32_t i = 0; i < found->second.chunks; ++i) keys.push_back(key_of(*ticket, i));
      held_.erase(found);
    }
  }
  if (auto erased = tier_->erase(keys); !erased) say("cannot erase: " + to_string(erased.error()));
  for (const auto& j : jobs)
    if (const auto* const then = std::get_if<std::function<void()>>(&j)) (*then)();
}

// The note goes last, so that an object which a kill cuts off does not exist.
std::vector<object_disk::outcome> rocksdb_object_disk::do_saves(std::span<const save_job> jobs) {
  std::vector<outcome> all;
  std::vector<put_item> items;
  std::vector<std::pair<std::uint64_t, kept>> fresh;
  std::deque<std::string> notes;
  std::deque<std::vector<std::byte>> gathered;
  for (const auto& j : jobs) {
    // Parts have no checksum of the object's writer; a part that is given up while it is written is erased.
    const bool is_all = j.object.size == j.object.object_size;
    auto& o =
        all.emplace_back(outcome{j.object.ticket, !is_all || checksum_of(j.bytes) == j.object.checksum});
    if (!o.good) continue;  // it has left memory, so its save is not wanted any more
    kept k{j.object, wall_deadline(j.object.soft_pin_for), wall_deadline(j.object.ttl),
           chunks_of(size_of(j.bytes))};
    k.record.published = true;
    std::vector<std::byte> note;
    byte_writer out{note};
    out.put(note_version);
    out.put(k.soft_until);
    out.put(k.ttl_until);
    store_wire::put_record(out, k.record);
    notes.emplace_back(reinterpret_cast<const char*>(note.data()), note.size());
    for (auto i = k.chunks; i-- > 0;) {
      const auto pieces = chunk_of(j.bytes, i);
      if (pieces.size() > 1) {
        auto& whole = gathered.emplace_back();
        for (const auto& p : pieces) whole.insert(whole.end(), p.begin(), p.end());
      }
      const auto bytes = pieces.size() > 1 ? std::span<const std::byte>{gathered.back()} : pieces.front();
      const auto sum = k.chunks == 1 && is_all ? j.object.checksum : checksum64(bytes);
      items.push_back({{{key_of(j.object.ticket, i), {j.object.ticket, 0}, i}, sum},
                       bytes,
                       i == 0 ? std::string_view{notes.back()} : std::string_view{}});
    }
    fresh.emplace_back(j.object.ticket, std::move(k));
  }
  const auto written = tier_->put(items);
  if (!written) {
    say("cannot save: " + to_string(written.error()));
    std::vector<block_key> keys;
    for (const auto& item : items) keys.push_back(item.block.name.key);
    static_cast<void>(tier_->erase(keys));
    for (auto& o : all) o.good = false;
    return all;
  }
  std::lock_guard lock{mutex_};
  for (auto& [ticket, k] : fresh) held_.insert_or_assign(ticket, std::move(k));
  return all;
}

}  // namespace mooncaf
