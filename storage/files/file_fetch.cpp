#include "storage/files/file_fetch.hpp"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>

#include "runtime/base/host_port.hpp"
#include "storage/engine/transfer_engine.hpp"
#include "storage/files/draft_offer.hpp"
#include "storage/files/file_manifest.hpp"
#include "storage/files/file_source.hpp"
#include "storage/files/part_schedule.hpp"
#include "storage/files/partial_files.hpp"

namespace mooncaf {

namespace {

using namespace std::chrono_literals;

/// For a block of hashes: as long as a slow disk needs to read what is hashed.
constexpr duration hashing_limit = 2min;
/// So often a source is told that the fetch goes on.
constexpr duration tell_source_every = 5s;
/// What others have of it is looked at so often.
constexpr duration look_every = 200ms;
/// Of as many as fetch the same, so many are asked for parts.
constexpr std::size_t others_max = 16;
/// Short ranges that one question brings.
constexpr std::size_t samples_max = 256;

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
    auto files = partial_files::open(options_.destination, *manifest_, !options_.wanted);
    if (!files) return fail(files.error());
    files_.emplace(std::move(*files));
    if (auto ok = draft_.start(*engine_, *manifest_, *files_); !ok) return fail(ok.error());
    own_ = to_string(host_port{options_.host, engine_->port()});
    came_.resize(manifest_->parts());
    meet_others(options_.meeting);
    progress_.total = options_.wanted ? 0 : manifest_->bytes();
    if (auto ok = options_.wanted ? carry_slice() : carry(); !ok) return fail(ok.error());
    if (auto ok = compare(); !ok) return fail(ok.error());
    for (std::size_t i = 0; i < sources_.size(); ++i)
      if (is_asked(i)) sources_[i]->tell(said(fetch_ended));
    if (auto ok = options_.wanted ? files_->finish_slice(parts_here()) : files_->finish(); !ok)
      return fail(ok.error());
    return report();
  }

 private:
  /// Which sources there are. The first that answers says what the content is; the others must have the same.
  result<void> describe() {
    for (const auto& at : options_.sources)
      sources_.push_back(std::make_shared<file_source>(*engine_, at, options_.limit));
    std::vector<std::pair<std::size_t, std::string>> gone;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if (auto ok = sources_[i]->describe(); !ok) gone.emplace_back(i, ok.error().detail);
      else if (!manifest_) manifest_ = sources_[i]->manifest(), reference_ = i;
      else if (!manifest_->same_shape(sources_[i]->manifest())) gone.emplace_back(i, "has other files");
    }
    plan_.emplace(manifest_ ? manifest_->parts() : 0, sources_.size(), options_.seed, !options_.wanted);
    for (auto& [i, why] : gone) plan_->drop(i, std::move(why));
    return manifest_ ? result<void>{} : fail(ec::unavailable, "no source can be asked: " + troubles_now());
  }

  /// Until nothing more is wanted than is there.
  result<void> carry_slice() {
    const auto wish = options_.wanted(*manifest_);
    for (;;) {
      const auto now = wish(draft_.bytes(), [&](const file_range& r) { return missing_of(r).empty(); });
      if (!now) return fail(now.error());
      std::set<std::size_t> parts;
      for (const auto& range : now->ranges)
        for (const auto& piece : missing_of(range)) parts.insert(manifest_->part_at(piece));
      if (parts.empty()) return sample(now->samples);
      for (const auto part : parts) {
        plan_->want(part);
        progress_.total += manifest_->part(part).bytes;
      }
      if (auto ok = carry(); !ok) return ok;
    }
  }

  /// Pieces of a range that have not come, each of one part.
  std::vector<file_range> missing_of(const file_range& range) const {
    std::vector<file_range> missing;
    const auto end = range.offset + range.bytes;
    for (auto at = range.offset; at < end;) {
      const auto next = std::min(end, (at / file_manifest::part_bytes + 1) * file_manifest::part_bytes);
      const file_range piece{range.file, at, next - at};
      if (!came_[manifest_->part_at(piece)]) missing.push_back(piece);
      at = next;
    }
    return missing;
  }

  std::vector<bool> parts_here() const {
    std::vector<bool> here;
    for (const auto& hash : came_) here.push_back(hash.has_value());
    return here;
  }

  /// Bytes of parts that do not come. No hash says what they must be: a process that tells its model by them compares it
  /// with its cluster's.
  result<void> sample(const std::vector<file_range>& samples) {
    const part_buffer buffer{*engine_};
    if (buffer.address() == 0) return fail(ec::out_of_space, "no memory for a part on its way");
    std::vector<file_range> batch;
    std::uint64_t bytes = 0;
    const auto bring_batch = [&] {
      const auto done = bring_samples(std::exchange(batch, {}), buffer);
      bytes = 0;
      return done;
    };
    for (const auto& range : samples)
      for (const auto& piece : missing_of(range)) {
        if (batch.size() == samples_max || bytes + piece.bytes > file_manifest::part_bytes)
          if (auto ok = bring_batch(); !ok) return ok;
        batch.push_back(piece);
        bytes += piece.bytes;
      }
    return bring_batch();
  }

  /// From the first source that has all and answers.
  result<void> bring_samples(const std::vector<file_range>& batch, const part_buffer& buffer) {
    if (batch.empty()) return {};
    result<void> moved = fail(ec::unavailable, troubles_now());
    for (std::size_t i = reference_; i < options_.sources.size() && !moved; ++i)
      if (is_asked(i)) moved = sources_[i]->move(batch, buffer.address());
    if (!moved) return fail(ec::unavailable, "no source is left: " + moved.error().detail);
    auto bytes = buffer.first(file_manifest::part_bytes);
    for (const auto& one : batch) {
      if (auto ok = files_->write(one, bytes.first(one.bytes)); !ok) return ok;
      bytes = bytes.subspan(one.bytes);
    }
    return {};
  }

  result<void> carry() {
    const auto cores = std::max(1u, std::thread::hardware_concurrency());
    const auto wanted = options_.threads > 0 ? options_.threads : std::clamp<std::size_t>(2 * cores, 6, 16);
    {
      std::vector<std::thread> workers;
      for (std::size_t i = 0; i < std::min(wanted, manifest_->parts()); ++i)
        workers.emplace_back([this] { work(); });
      workers.emplace_back([this] { look_around(); });
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
      changed_.wait_for(lock, tell_source_every, [&] { return over(); });
      if (over()) return;
      lock.unlock();
      announce();
      lock.lock();
    }
  }

  void announce() {
    for (std::size_t i = 0; i < options_.sources.size(); ++i)
      if (is_asked(i)) sources_[i]->tell(said(fetch_goes_on));
  }

  /// Others that fetch the same are met before anything is asked for: from then on what a source is asked lies before
  /// each further question to it. @param patience  until a source has put this fetch on its page
  void meet_others(duration patience) {
    announce();
    bool listed = false;
    for (const auto until = clock_type::now() + patience; !listed && clock_type::now() < until;) {
      bool tells = false;
      for (std::size_t i = 0; i < options_.sources.size(); ++i) {
        if (!is_asked(i)) continue;
        const auto found = sources_[i]->fetches();
        tells |= sources_[i]->tells_fetches();
        listed |= std::ranges::find(found, own_) != found.end();
        for (const auto& at : found) meet(at);
      }
      if (!tells) return;
      if (!listed) std::this_thread::sleep_for(20ms);
    }
  }

  /// What others have of it, and who has come since: who comes later says so to those who are there.
  void look_around() {
    // Looks in a row: a map that changes as it is sent does not arrive.
    std::map<std::size_t, std::uint32_t> missed;
    std::unique_lock lock{mutex_};
    while (!over()) {
      for (std::size_t i = options_.sources.size(); i < sources_.size(); ++i) {
        if (plan_->dropped(i)) continue;
        const auto one = sources_[i];
        lock.unlock();
        const auto map = one->holds();
        lock.lock();
        if (map) plan_->holds(i, *map), missed[i] = 0;
        else if (++missed[i] == part_schedule::failures_max) plan_->drop(i, map.error().detail);
      }
      lock.unlock();
      for (const auto& word : engine_->take_words())
        if (word.text.starts_with(fetch_goes_on) && word.text.size() > fetch_goes_on.size())
          meet(word.text.substr(fetch_goes_on.size() + 1));
      lock.lock();
      changed_.notify_all();
      changed_.wait_for(lock, look_every, [&] { return over(); });
    }
  }

  /// Another host that fetches is one more source, if it is the same that it fetches.
  void meet(const std::string& at) {
    if (at == own_ || met_.size() >= others_max || met_.contains(at)) return;
    auto other = std::make_shared<file_source>(*engine_, at, options_.limit);
    if (!other->describe() || !manifest_->same_shape(other->manifest())) return;
    const auto map = other->holds();
    if (!map) return;
    met_.insert(at);
    other->tell(said(fetch_goes_on));
    std::lock_guard lock{mutex_};
    sources_.push_back(std::move(other));
    plan_->holds(plan_->add_fetching(), *map);
  }

  std::string said(std::string_view what) const { return std::string{what} + ' ' + own_; }
  bool over() const { return broken_ || plan_->finished() || plan_->hopeless() || stranded_; }
  bool is_asked(std::size_t i) {
    std::lock_guard lock{mutex_};
    return !plan_->fetches(i) && !plan_->dropped(i);
  }

  void work() {
    const part_buffer buffer{*engine_};
    std::unique_lock lock{mutex_};
    while (!over()) {
      const auto task = buffer.address() != 0 ? plan_->take() : std::nullopt;
      if (buffer.address() == 0) broken_ = error{ec::out_of_space, "no memory for a part on its way"};
      if (!task) {
        stranded_ = plan_->stranded() && clock_type::now() - came_last_ > options_.limit;
        changed_.wait_for(lock, 100ms);
        continue;
      }
      const auto from = sources_[task->source];
      lock.unlock();
      draft_.is(task->part, part_holding::comes);
      auto done = bring(*task, *from, buffer);
      draft_.is(task->part, done ? part_holding::here : part_holding::none);
      lock.lock();
      if (done) {
        came_last_ = clock_type::now();
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
  result<bool> bring(const part_schedule::task& t, file_source& from, const part_buffer& buffer) {
    const auto part = manifest_->part(t.part);
    const auto bytes = buffer.first(part.bytes);
    const auto expected = hash_of(t, from);
    if (!expected) return fail(not_disk(expected.error()));
    const bool there = files_->resumed() && files_->read(t.part, bytes) && hash_bytes128(bytes) == *expected;
    if (!there) {
      if (auto moved = from.move({part}, buffer.address()); !moved) return fail(not_disk(moved.error()));
      if (hash_bytes128(bytes) != *expected)
        return fail(ec::corrupt, "a part of it is not what its hash says");
      const auto written = files_->write(t.part, bytes);
      if (!written) return fail(ec::io_error, written.error().detail);
    }
    came_[t.part] = *expected;
    draft_.knows(t.part / file_manifest::hashes_per_block * file_manifest::hashes_per_block,
                 from.block_of(t.part));
    return there;
  }

  /// A source whose part has another hash than the reference's has another file of that name and size. A reference that
  /// is gone is followed by the next source; `compare` has the last word.
  result<hash128> hash_of(const part_schedule::task& t, file_source& from) {
    const auto own = from.hash(t.part, hashing_limit);
    if (!own) return own;
    std::unique_lock lock{mutex_};
    while (plan_->dropped(reference_) && reference_ + 1 < options_.sources.size()) ++reference_;
    const auto reference = sources_[reference_];
    lock.unlock();
    if (reference.get() == &from) return own;
    const auto other = reference->hash(t.part, hashing_limit);
    if (!other || *other == *own) return own;
    lock.lock();
    plan_->drop(t.source, "has another content than " + reference->at());
    return fail(ec::corrupt, "another content");
  }

  /// Whether all that came is of one content, as one source tells it: the sources could not always be compared, where
  /// one was gone. Hashes that are known of a source that is gone count.
  result<void> compare() {
    bool differs = false;
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      const auto& one = sources_[s];
      if (!one->described() || !manifest_->same_shape(one->manifest())) continue;
      bool known = true, same = true;
      for (std::size_t i = 0; i < came_.size() && known && same; ++i) {
        if (!came_[i]) continue;
        const auto hash = one->hash(i, plan_->fetches(s) ? duration{} : hashing_limit);
        known = hash.has_value();
        same = known && *hash == *came_[i];
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
    for (std::size_t i = 0; i < options_.sources.size(); ++i)
      if (const auto& why = plan_->trouble(i); !why.empty())
        all += (all.empty() ? "" : "; ") + sources_[i]->at() + ": " + why;
    return all;
  }

  fetch_report report() const {
    fetch_report r;
    r.bytes = progress_;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if (plan_->fetches(i)) {
        r.from_fetches += plan_->came_from(i);
        continue;
      }
      r.came_from.push_back(plan_->came_from(i));
      if (plan_->dropped(i)) r.dropped.push_back(sources_[i]->at() + ": " + plan_->trouble(i));
    }
    return r;
  }

  const file_fetch_options& options_;
  const std::function<void(const fetch_progress&)>& tell_;
  draft_offer draft_;  // others read it until the engine has ended
  std::unique_ptr<transfer_engine> engine_;
  std::string own_;                                    ///< HOST:PORT of the engine
  std::set<std::string> met_;                          ///< others that fetch; of one thread at a time
  std::vector<std::shared_ptr<file_source>> sources_;  ///< those of the options first
  std::optional<file_manifest> manifest_;
  std::optional<partial_files> files_;
  std::vector<std::optional<hash128>> came_;  ///< of each part once it is here, written by its worker alone
  std::mutex mutex_;                          // guards everything below
  std::condition_variable changed_;
  std::optional<part_schedule> plan_;
  std::size_t reference_ = 0;
  fetch_progress progress_;
  time_point came_last_ = clock_type::now();
  bool stranded_ = false;        ///< others that fetch are left alone, and none of them gets what is missing
  std::optional<error> broken_;  ///< this host cannot keep what comes
};

}  // namespace

result<fetch_report> fetch_files(const file_fetch_options& options,
                                 const std::function<void(const fetch_progress&)>& tell) {
  return fetcher{options, tell}.run();
}

}  // namespace mooncaf
