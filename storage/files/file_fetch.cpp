#include "storage/files/file_fetch.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "storage/engine/transfer_engine.hpp"
#include "storage/files/file_manifest.hpp"
#include "storage/files/part_schedule.hpp"
#include "storage/files/partial_files.hpp"

namespace mooncaf {

namespace {

using namespace std::chrono_literals;

constexpr auto per_block = file_manifest::hashes_per_block;
/// For a block of hashes: as long as a slow disk needs to read what is hashed.
constexpr duration hashing_limit = 2min;
/// So often a source is told that the fetch goes on.
constexpr duration tell_source_every = 5s;

/// A part's bytes on their way: memory that the transport knows.
class part_buffer {
 public:
  explicit part_buffer(transfer_engine& engine) : engine_(engine) {
    if (const auto made = engine_.allocate(file_manifest::part_bytes)) address_ = *made;
  }
  ~part_buffer() {
    if (address_ != 0) static_cast<void>(engine_.release(address_));
  }
  part_buffer(const part_buffer&) = delete;
  part_buffer& operator=(const part_buffer&) = delete;

  std::uint64_t address() const noexcept { return address_; }
  std::span<std::byte> first(std::uint64_t bytes) const {
    return {reinterpret_cast<std::byte*>(address_), static_cast<std::size_t>(bytes)};
  }

 private:
  transfer_engine& engine_;
  std::uint64_t address_ = 0;
};

/// One source: what it says that it has, and the hashes that are known of it so far.
class source {
 public:
  source(transfer_engine& engine, std::string at, duration limit)
      : engine_(engine), at_(std::move(at)), limit_(limit) {}

  const std::string& at() const noexcept { return at_; }
  const file_manifest& manifest() const { return *manifest_; }
  bool described() const noexcept { return manifest_.has_value(); }

  /// Reads head, names and sizes. @error as `transfer_engine::move`, `file_manifest::parse`
  result<void> describe() {
    const auto begin = engine_.first_address(at_);
    if (!begin) return fail(begin.error());
    std::array<std::byte, file_manifest::head_bytes> first{};
    if (auto got = read(*begin, first); !got) return got;
    const auto head = file_manifest::parse_head(first);
    if (!head) return fail(head.error());
    head_ = *head;
    std::vector<std::byte> whole(static_cast<std::size_t>(head_.bytes));
    if (auto got = read(*begin, whole); !got) return got;
    auto manifest = file_manifest::parse(whole);
    if (!manifest) return fail(manifest.error());
    manifest_ = std::move(*manifest);
    hashes_.resize(manifest_->parts());
    known_.resize((manifest_->parts() + per_block - 1) / per_block);
    return {};
  }

  result<void> move(const file_part& part, std::uint64_t into) {
    const engine_piece piece{into, manifest_->files()[part.file].address + part.offset, part.bytes};
    return engine_.move(transfer_op::read, at_, {piece}, limit_);
  }

  /// What a part of it must be. A source that has not hashed so far yet answers that it has not, and is waited for.
  /// @error `ec::timed_out`; as `transfer_engine::move`
  result<hash128> hash(std::size_t part) {
    std::lock_guard lock{mutex_};  // others want the same block
    const auto block = part / per_block;
    for (const auto until = clock_type::now() + hashing_limit; !known_[block];) {
      if (const auto learned = learn(block); learned) break;
      else if (learned.error() != ec::not_found) return fail(learned.error());
      if (clock_type::now() > until) return fail(ec::timed_out, "it does not go on hashing its files");
      std::this_thread::sleep_for(20ms);
    }
    return hashes_[part];
  }

  void tell(std::string_view what) { static_cast<void>(engine_.notify(at_, {"weights", std::string{what}})); }

 private:
  result<void> read(std::uint64_t address, std::span<std::byte> into) {
    return engine_.move(transfer_op::read, at_,
                        {{reinterpret_cast<std::uint64_t>(into.data()), address, into.size()}}, limit_);
  }
  result<void> learn(std::size_t block) {
    const auto first = block * per_block, count = std::min(per_block, hashes_.size() - first);
    std::vector<std::byte> bytes(count * file_manifest::hash_bytes);
    if (auto got = read(head_.hashes + first * file_manifest::hash_bytes, bytes); !got) return got;
    for (std::size_t i = 0; i < count; ++i)
      hashes_[first + i] = file_manifest::parse_hash(std::span<const std::byte>{bytes}
                                                         .subspan(i * file_manifest::hash_bytes)
                                                         .first<file_manifest::hash_bytes>());
    known_[block] = true;
    return {};
  }

  transfer_engine& engine_;
  const std::string at_;
  const duration limit_;
  file_manifest::head head_;
  std::optional<file_manifest> manifest_;
  std::mutex mutex_;         // guards everything below
  std::vector<bool> known_;  ///< blocks of hashes
  std::vector<hash128> hashes_;
};

class fetcher {
 public:
  fetcher(const file_fetch_options& options, const std::function<void(const fetch_progress&)>& tell)
      : options_(options), tell_(tell) {}

  result<fetch_report> run() {
    transfer_engine_options engine;
    engine.secret = options_.secret;
    engine.host = options_.host;
    auto started = transfer_engine::start(engine);
    if (!started) return fail(started.error());
    engine_ = std::move(*started);
    if (auto ok = describe(); !ok) return fail(ok.error());
    auto files = partial_files::open(options_.destination, *manifest_);
    if (!files) return fail(files.error());
    files_.emplace(std::move(*files));
    progress_.total = manifest_->bytes();
    came_.resize(manifest_->parts());
    if (auto ok = carry(); !ok) return fail(ok.error());
    if (auto ok = compare(); !ok) return fail(ok.error());
    for (std::size_t i = 0; i < sources_.size(); ++i)
      if (!dropped(i)) sources_[i]->tell(fetch_ended);
    if (auto ok = files_->finish(); !ok) return fail(ok.error());
    return report();
  }

 private:
  /// Which sources there are. The first that answers says what the content is; the others must have the same.
  result<void> describe() {
    for (const auto& at : options_.sources)
      sources_.push_back(std::make_unique<source>(*engine_, at, options_.limit));
    std::vector<std::pair<std::size_t, std::string>> gone;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if (auto ok = sources_[i]->describe(); !ok) gone.emplace_back(i, ok.error().detail);
      else if (!manifest_) manifest_ = sources_[i]->manifest(), reference_ = i;
      else if (!manifest_->same_shape(sources_[i]->manifest())) gone.emplace_back(i, "has other files");
    }
    plan_.emplace(manifest_ ? manifest_->parts() : 0, sources_.size());
    for (auto& [i, why] : gone) plan_->drop(i, std::move(why));
    return manifest_ ? result<void>{} : fail(ec::unavailable, "no source can be asked: " + troubles_now());
  }

  result<void> carry() {
    const auto cores = std::max(1u, std::thread::hardware_concurrency());
    const auto wanted = options_.threads > 0 ? options_.threads : std::clamp<std::size_t>(2 * cores, 6, 16);
    {
      std::vector<std::thread> workers;
      for (std::size_t i = 0; i < std::min(wanted, manifest_->parts()); ++i)
        workers.emplace_back([this] { work(); });
      keep_telling();
      for (auto& one : workers) one.join();
    }
    std::lock_guard lock{mutex_};
    if (broken_) return fail(*broken_);
    if (!plan_->finished()) return fail(ec::unavailable, "no source is left: " + troubles_now());
    return {};
  }

  /// Until the work is over: a source may end when nobody wants anything of it.
  void keep_telling() {
    std::unique_lock lock{mutex_};
    while (!over()) {
      lock.unlock();
      for (std::size_t i = 0; i < sources_.size(); ++i)
        if (!dropped(i)) sources_[i]->tell(fetch_goes_on);
      lock.lock();
      changed_.wait_for(lock, tell_source_every, [&] { return over(); });
    }
  }

  bool over() const { return broken_ || plan_->finished() || plan_->hopeless(); }
  bool dropped(std::size_t i) {
    std::lock_guard lock{mutex_};
    return plan_->dropped(i);
  }

  void work() {
    const part_buffer buffer{*engine_};
    std::unique_lock lock{mutex_};
    while (!over()) {
      const auto task = buffer.address() != 0 ? plan_->take() : std::nullopt;
      if (buffer.address() == 0) broken_ = error{ec::out_of_space, "no memory for a part on its way"};
      if (!task) {
        changed_.wait_for(lock, 100ms);
        continue;
      }
      lock.unlock();
      auto done = bring(*task, buffer);
      lock.lock();
      if (done) {
        plan_->done(*task);
        (*done ? progress_.found : progress_.fetched) += manifest_->part(task->part).bytes;
      } else if (done.error() == ec::io_error) {
        broken_ = done.error();
      } else {
        plan_->failed(*task, done.error().detail);
      }
      if (tell_) tell_(progress_);
      changed_.notify_all();
    }
    changed_.notify_all();
  }

  /// One part, checked and written. @returns whether it was there already. @error `ec::io_error`: of this host's disk
  result<bool> bring(const part_schedule::task& t, const part_buffer& buffer) {
    const auto part = manifest_->part(t.part);
    const auto bytes = buffer.first(part.bytes);
    const auto expected = hash_of(t);
    if (!expected) return fail(not_disk(expected.error()));
    came_[t.part] = *expected;
    if (files_->resumed() && files_->read(t.part, bytes) && hash_bytes128(bytes) == *expected) return true;
    if (auto moved = sources_[t.source]->move(part, buffer.address()); !moved)
      return fail(not_disk(moved.error()));
    if (hash_bytes128(bytes) != *expected) return fail(ec::corrupt, "a part of it is not what its hash says");
    const auto written = files_->write(t.part, bytes);
    return written ? result<bool>{false} : fail(ec::io_error, written.error().detail);
  }

  /// A source whose part has another hash than the reference's has another file of that name and size. A reference that
  /// is gone is followed by the next source; `compare` has the last word.
  result<hash128> hash_of(const part_schedule::task& t) {
    const auto own = sources_[t.source]->hash(t.part);
    if (!own) return own;
    std::size_t reference = 0;
    {
      std::lock_guard lock{mutex_};
      while (plan_->dropped(reference_) && reference_ + 1 < sources_.size()) ++reference_;
      reference = reference_;
    }
    if (reference == t.source) return own;
    const auto other = sources_[reference]->hash(t.part);
    if (!other || *other == *own) return own;
    std::lock_guard lock{mutex_};
    plan_->drop(t.source, "has another content than " + sources_[reference]->at());
    return fail(ec::corrupt, "another content");
  }

  /// Whether all that came is of one content, as one source tells it: the sources could not always be compared, where
  /// one was gone. Hashes that are known of a source that is gone count.
  result<void> compare() {
    bool differs = false;
    for (const auto& one : sources_) {
      if (!one->described() || !manifest_->same_shape(one->manifest())) continue;
      bool known = true, same = true;
      for (std::size_t i = 0; i < came_.size() && known && same; ++i) {
        const auto hash = one->hash(i);
        known = hash.has_value();
        same = known && *hash == came_[i];
      }
      if (same) return {};
      differs |= known;
    }
    if (!differs) return fail(ec::unavailable, "no source is left that knows all of it: " + troubles_now());
    return fail(ec::corrupt,
                "the sources have different contents; a fetch from one of them goes on with what is right");
  }

  /// An error of a link must not look like one of the disk.
  static error not_disk(const error& e) { return {e == ec::io_error ? ec::peer_lost : e.code, e.detail}; }

  std::string troubles_now() const {
    std::string all;
    for (std::size_t i = 0; i < sources_.size(); ++i)
      if (const auto& why = plan_->trouble(i); !why.empty())
        all += (all.empty() ? "" : "; ") + sources_[i]->at() + ": " + why;
    return all;
  }

  fetch_report report() const {
    fetch_report r;
    r.bytes = progress_;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      r.came_from.push_back(plan_->came_from(i));
      if (plan_->dropped(i)) r.dropped.push_back(sources_[i]->at() + ": " + plan_->trouble(i));
    }
    return r;
  }

  const file_fetch_options& options_;
  const std::function<void(const fetch_progress&)>& tell_;
  std::unique_ptr<transfer_engine> engine_;
  std::vector<std::unique_ptr<source>> sources_;
  std::optional<file_manifest> manifest_;
  std::optional<partial_files> files_;
  std::vector<hash128> came_;  ///< of each part, written by its worker alone
  std::mutex mutex_;           // guards everything below
  std::condition_variable changed_;
  std::optional<part_schedule> plan_;
  std::size_t reference_ = 0;
  fetch_progress progress_;
  std::optional<error> broken_;  ///< this host cannot keep what comes
};

}  // namespace

result<fetch_report> fetch_files(const file_fetch_options& options,
                                 const std::function<void(const fetch_progress&)>& tell) {
  return fetcher{options, tell}.run();
}

}  // namespace mooncaf
