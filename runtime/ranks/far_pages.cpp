#include "runtime/ranks/far_pages.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <condition_variable>
#include <iterator>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "gpu/device_failure.hpp"
#include "runtime/ranks/rank_notices.hpp"

namespace mooncaf {

namespace {

/// Pieces of KV in one transfer: enough for a layer of a long prompt, few enough to be under way side by side.
constexpr std::size_t most_slices = 256;

/// Batches of copies of one queue: how many have been handed over, and how many of the first ones have ended.
struct copy_count {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t handed = 0, ended = 0;
  std::set<std::uint64_t> early;  ///< that ended before others in front of them
  result<void> outcome;           ///< the first error

  void end(std::uint64_t batch, const result<void>& how) {
    {
      const std::lock_guard lock{mutex};
      if (!how && outcome) outcome = how;
      early.insert(batch);
      while (early.erase(ended) != 0) ++ended;
    }
    changed.notify_all();
  }
};

/// The batches up to a number have ended.
class copies_ended final : public event {
 public:
  copies_ended(std::shared_ptr<copy_count> count, std::uint64_t upto)
      : count_(std::move(count)), upto_(upto) {}
  void wait() override {
    std::unique_lock lock{count_->mutex};
    count_->changed.wait(lock, [&] { return count_->ended >= upto_; });
    if (!count_->outcome)
      throw device_failure("KV could not be copied: " + to_string(count_->outcome.error()));
  }
  bool reached() const override {
    const std::lock_guard lock{count_->mutex};
    return count_->ended >= upto_;
  }

 private:
  std::shared_ptr<copy_count> count_;
  std::uint64_t upto_;
};

class far_copies final : public copy_queue {
 public:
  explicit far_copies(std::shared_ptr<far_pages> pages) : pages_(std::move(pages)) {}

  void load(std::span<const kv_copy> copies) override { add(transfer_op::read, copies); }
  void store(std::span<const kv_copy> copies) override { add(transfer_op::write, copies); }
  void wait(const event_ptr& e) override { wait_for(e); }
  event_ptr record() override {
    const std::lock_guard lock{count_->mutex};
    if (count_->ended == count_->handed && count_->outcome) return nullptr;
    return std::make_shared<copies_ended>(count_, count_->handed);
  }

 private:
  void add(transfer_op op, std::span<const kv_copy> copies) {
    std::uint64_t batch = 0;
    {
      const std::lock_guard lock{count_->mutex};
      batch = count_->handed++;
    }
    pages_->copy(op, copies, [count = count_, batch](const result<void>& how) { count->end(batch, how); });
  }

  std::shared_ptr<far_pages> pages_;
  std::shared_ptr<copy_count> count_ = std::make_shared<copy_count>();
};

class joined_buffer final : public buffer {
 public:
  joined_buffer(std::unique_ptr<buffer> inner, std::shared_ptr<far_pages> pages)
      : inner_(std::move(inner)), pages_(std::move(pages)) {}
  ~joined_buffer() override { pages_->leave(bytes()); }
  float* data() noexcept override { return inner_->data(); }
  std::size_t size_bytes() const noexcept override { return inner_->size_bytes(); }
  std::span<std::byte> bytes() noexcept {
    return {reinterpret_cast<std::byte*>(inner_->data()), inner_->size_bytes()};
  }

 private:
  std::unique_ptr<buffer> inner_;
  std::shared_ptr<far_pages> pages_;
};

class far_device final : public device {
 public:
  far_device(device& inner, std::shared_ptr<far_pages> pages) : inner_(inner), pages_(std::move(pages)) {}

  device_info info() const override {
    auto out = inner_.info();
    out.host_memory = false;
    return out;
  }
  result<std::unique_ptr<weight>> load_weight(ggml_type type, std::size_t rows, std::size_t cols,
                                              std::span<const std::byte> data) override {
    return inner_.load_weight(type, rows, cols, data);
  }
  result<std::unique_ptr<weight>> load_table(ggml_type type, std::size_t rows, std::size_t cols,
                                             std::span<const std::byte> data) override {
    return inner_.load_table(type, rows, cols, data);
  }
  result<std::unique_ptr<buffer>> allocate(std::size_t bytes) override {
    auto made = inner_.allocate(bytes);
    if (!made) return made;
    auto joined = std::make_unique<joined_buffer>(std::move(*made), pages_);
    if (auto region = pages_->join(joined->bytes()); !region) return fail(std::move(region.error()));
    return joined;
  }
  std::unique_ptr<compute_queue> make_queue(int priority) override { return inner_.make_queue(priority); }
  result<void> pin(std::span<std::byte>, std::shared_ptr<const void>) override { return {}; }
  std::unique_ptr<copy_queue> make_copy_queue() override { return std::make_unique<far_copies>(pages_); }

 private:
  device& inner_;
  std::shared_ptr<far_pages> pages_;
};

}  // namespace

result<std::shared_ptr<far_pages>> far_pages::make(data_plane& plane,
                                                   std::shared_ptr<std::atomic<std::uint64_t>> ids,
                                                   node_id owner, const region_desc& region) {
  std::shared_ptr<far_pages> made{new far_pages};
  void* at = ::mmap(nullptr, region.length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    return fail(ec::out_of_space,
                "no addresses for " + std::to_string(region.length) +
                    " bytes of a leader's pages: " + std::generic_category().message(errno));
  made->plane_ = &plane;
  made->ids_ = std::move(ids);
  made->owner_ = owner;
  made->region_ = region.id;
  made->base_ = static_cast<std::byte*>(at);
  made->bytes_ = region.length;
  return made;
}

far_pages::~far_pages() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

result<region_id> far_pages::join(std::span<std::byte> own, int fd) {
  auto region = plane_->register_region(own, fd);
  if (!region) return fail(std::move(region.error()));
  const std::lock_guard lock{mutex_};
  own_[own.data()] = {own.size(), region->id};
  return region->id;
}

void far_pages::leave(std::span<std::byte> own) {
  region_id region;
  {
    const std::lock_guard lock{mutex_};
    const auto at = own_.find(own.data());
    if (at == own_.end()) return;
    region = at->second.region;
    own_.erase(at);
  }
  (void)plane_->unregister_region(region);
}

slice far_pages::own_slice(const std::byte* at, std::size_t bytes) const {
  const std::lock_guard lock{mutex_};
  const auto part = std::prev(own_.upper_bound(at));
  return {part->second.region, static_cast<std::uint64_t>(at - part->first), bytes};
}

/// In as many transfers as its pieces need, which are under way side by side.
void far_pages::copy(transfer_op op, std::span<const kv_copy> copies,
                     std::function<void(const result<void>&)> done) {
  std::vector<transfer> orders;
  for (const auto& c : copies) {
    for (std::size_t i = 0; i < c.count; ++i) {
      if (orders.empty() || orders.back().slices.size() == most_slices) {
        auto& t = orders.emplace_back();
        t.id = transfer_id{ids_->fetch_add(1)};
        t.peer = owner_;
        t.op = op;
        t.tag = rank_notices::tag_of({rank_notice::quiet, 0, 0});
      }
      const auto there = static_cast<std::uint64_t>(c.host + i * c.host_pitch() - base_);
      orders.back().slices.push_back(
          {own_slice(c.device.at + i * c.pitch_bytes, c.piece_bytes), {region_, there, c.piece_bytes}, {}});
    }
  }
  if (orders.empty()) return done({});
  struct state {
    std::mutex mutex;
    std::size_t left = 0;
    result<void> outcome;
    std::function<void(const result<void>&)> done;
  };
  const auto all = std::make_shared<state>();
  all->left = orders.size();
  all->done = std::move(done);
  for (auto& order : orders)
    plane_->submit(std::move(order), [all](const completion& c) {
      {
        const std::lock_guard lock{all->mutex};
        if (!c.outcome && all->outcome) all->outcome = c.outcome;
        if (--all->left > 0) return;
      }
      all->done(all->outcome);
    });
}

std::unique_ptr<device> make_far_device(device& inner, std::shared_ptr<far_pages> pages) {
  return std::make_unique<far_device>(inner, std::move(pages));
}

}  // namespace mooncaf
