#pragma once
// Two nodes, the memory of each, and one path between them: the stage on which every transport has to show
// the same promises.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <vector>

#include "transport/data_plane.hpp"

namespace mooncaf::test {

inline constexpr auto patience = std::chrono::seconds(30);  // a bound for hangs, not a wait

/// Sealed shared memory, filled from a seed.
class shared_memory {
 public:
  explicit shared_memory(std::size_t bytes) : size_(bytes) {
    fd_ = ::memfd_create("mooncaf-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(fd_ >= 0);
    REQUIRE(::ftruncate(fd_, static_cast<::off_t>(bytes)) == 0);
    REQUIRE(::fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    REQUIRE(at != MAP_FAILED);
    base_ = static_cast<std::byte*>(at);
  }
  ~shared_memory() {
    ::munmap(base_, size_);
    ::close(fd_);
  }
  shared_memory(const shared_memory&) = delete;
  shared_memory& operator=(const shared_memory&) = delete;

  std::span<std::byte> bytes() const { return {base_, size_}; }
  int fd() const { return fd_; }
  void fill(std::uint64_t seed) const {
    std::mt19937_64 random{seed};
    for (std::size_t i = 0; i + 8 <= size_; i += 8) {
      const auto word = random();
      std::memcpy(base_ + i, &word, 8);
    }
  }

 private:
  int fd_ = -1;
  std::size_t size_;
  std::byte* base_ = nullptr;
};

/// Something that happens on another thread, awaited.
template <class T>
class mailbox {
 public:
  void put(T value) {
    std::lock_guard lock{mutex_};
    items_.push_back(std::move(value));
    changed_.notify_all();
  }
  T take() {
    std::unique_lock lock{mutex_};
    REQUIRE_MESSAGE(changed_.wait_for(lock, patience, [&] { return !items_.empty(); }),
                    "nothing came in time");
    T value = std::move(items_.front());
    items_.pop_front();
    return value;
  }
  void await(std::size_t count) {
    std::unique_lock lock{mutex_};
    REQUIRE_MESSAGE(changed_.wait_for(lock, patience, [&] { return items_.size() >= count; }),
                    "only " << items_.size() << " of " << count << " came in time");
  }
  std::size_t size() const {
    std::lock_guard lock{mutex_};
    return items_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> items_;
};

/// Faults by (slice index) of every transfer, until disarmed.
class scripted_faults : public fault_injector {
 public:
  std::function<fault(transfer_path, transfer_id, std::uint32_t)> script;
  fault before_slice(transfer_path path, transfer_id id, std::uint32_t index) override {
    std::lock_guard lock{mutex_};
    return script ? script(path, id, index) : fault{};
  }
  void set(std::function<fault(transfer_path, transfer_id, std::uint32_t)> s) {
    std::lock_guard lock{mutex_};
    script = std::move(s);
  }

 private:
  std::mutex mutex_;
};

inline data_plane_options plain_options(std::uint64_t node) {
  data_plane_options o;
  o.node.value = node;
  o.cluster_secret = "the secret of the tests";
  return o;
}

/// One node with one region.
struct test_node {
  explicit test_node(data_plane_options options, std::size_t bytes = 40 * MiB) : memory(bytes) {
    start(std::move(options));
  }
  void start(data_plane_options options) {
    auto started = data_plane::start(std::move(options), [this](const landing& l) { landings.put(l); });
    REQUIRE_MESSAGE(started, to_string(started.error()));
    plane = std::move(*started);
    auto desc = plane->register_region(memory.bytes(), memory.fd());
    REQUIRE(desc);
    region = *desc;
  }
  node_id id() const { return plane->local_address().node; }

  shared_memory memory;
  mailbox<landing> landings;  // outlives the plane
  std::unique_ptr<data_plane> plane;
  region_desc region;
};

inline void introduce(test_node& to, const test_node& whom) {
  REQUIRE(to.plane->add_peer(whom.plane->local_address(), whom.plane->local_announcement().regions));
}

inline completion run(data_plane& plane, transfer t) {
  auto box = std::make_shared<mailbox<completion>>();
  plane.submit(std::move(t), [box](const completion& c) { box->put(c); });
  return box->take();
}

struct local_path {
  static constexpr auto path = transfer_path::local;
  static void configure(data_plane_options&) {}
};
struct shm_path {
  static constexpr auto path = transfer_path::shm;
  static void configure(data_plane_options& o) {
    o.tcp = false;
    o.rdma.enabled = false;
  }
};
struct tcp_path {
  static constexpr auto path = transfer_path::tcp;
  static void configure(data_plane_options& o) {
    o.shm = false;
    o.rdma.enabled = false;
  }
};
struct rdma_path {
  static constexpr auto path = transfer_path::rdma;
  static void configure(data_plane_options& o) {
    o.shm = false;
    o.tcp = false;
  }
};

/// Sender and receiver over one path; over the local path they are one node with two regions.
template <class Path>
class world {
 public:
  static constexpr bool one_node = Path::path == transfer_path::local;

  explicit world(std::function<void(data_plane_options&)> change = {}, std::size_t bytes = 40 * MiB)
      : sender_(options(1, change), bytes) {
    if constexpr (one_node) {
      second_ = std::make_unique<shared_memory>(bytes);
      auto desc = sender_.plane->register_region(second_->bytes(), second_->fd());
      REQUIRE(desc);
      second_region_ = *desc;
    } else {
      receiver_ = std::make_unique<test_node>(options(2, change), bytes);
      introduce(sender_, *receiver_);
      introduce(*receiver_, sender_);
    }
    from().fill(1);
    to().fill(2);
  }

  test_node& sender() { return sender_; }
  test_node& receiver() { return one_node ? sender_ : *receiver_; }
  const shared_memory& from() const { return sender_.memory; }
  const shared_memory& to() const { return one_node ? *second_ : receiver_->memory; }
  region_desc here() const { return sender_.region; }
  region_desc there() const { return one_node ? second_region_ : receiver_->region; }
  data_plane& plane() { return *sender_.plane; }
  scripted_faults faults;

  transfer make(transfer_op op, std::vector<slice_pair> slices) {
    transfer t;
    t.id.value = next_id_++;
    t.peer = receiver().id();
    t.op = op;
    t.slices = std::move(slices);
    t.tag = {request_id{t.id.value * 10}, 3, 4, 5};
    return t;
  }
  slice_pair pair(std::uint64_t local, std::uint64_t remote, std::uint64_t length) const {
    return {{here().id, local, length}, {there().id, remote, length}, {}};
  }

 private:
  data_plane_options options(std::uint64_t node, const std::function<void(data_plane_options&)>& change) {
    auto o = plain_options(node);
    Path::configure(o);
    o.faults = &faults;
    if (change) change(o);
    return o;
  }

  test_node sender_;
  std::unique_ptr<test_node> receiver_;
  std::unique_ptr<shared_memory> second_;
  region_desc second_region_;
  std::atomic<std::uint64_t> next_id_{1};
};

}  // namespace mooncaf::test
