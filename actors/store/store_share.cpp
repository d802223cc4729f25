#include "actors/store/store_share.hpp"

#include <algorithm>

#include "actors/metrics/metric_families.hpp"
#include "actors/store/store_command.hpp"
#include "actors/store/store_metrics.hpp"
#include "runtime/base/host_place.hpp"
#include "runtime/log/log.hpp"

namespace mooncaf {

store_share::~store_share() { unmount(); }

void store_share::unmount() {
  std::thread ending;
  {
    std::lock_guard lock{mutex_};
    stopping_ = true;
    ending.swap(keeper_);
  }
  changed_.notify_all();
  if (ending.joinable()) ending.join();
  segment_ = {};
}

void store_share::hand_over(time_point until) {
  {
    std::lock_guard lock{mutex_};
    if (mounted_bytes_ == 0) return;
  }
  auto to = address_of(seats_);
  to.everyone = true;  // the segment has objects of all tenants
  const auto client = store_client::connect({std::move(to)});
  if (!client) return log_warn("store", {{"handed_over", "nothing"}, {"problem", to_string(client.error())}});
  if ((*client)->drain(segment_.name, true) != store_code::ok) return;
  const auto done = (*client)->move_last_copies(segment_.name, until);
  if (done.moved + done.left > 0)
    log_info("store", {{"handed_over", std::to_string(done.moved)}, {"lost", std::to_string(done.left)}});
}

directory_address store_share::address_of(std::shared_ptr<const directory_seats> at) const {
  directory_address to;
  to.at = std::move(at);
  to.secret = key_;
  to.own_host = this_host();
  to.newest = protocol_;
  return to;
}

result<std::uint16_t> store_share::open_directory(const host_port& at, const store_options& chosen,
                                                  bool alone) {
  auto opened = carried_directory::open(at, key_, chosen, alone);
  if (!opened) return fail(opened.error());
  directory_ = std::move(*opened);
  return directory_->at().port;
}

void store_share::mount(segment_mount_options segment) {
  segment_ = std::move(segment);
  segment_.divided = [this](const shared_memory_figures& now) {
    std::lock_guard lock{mutex_};
    divided_ = now;
  };
  segment_.log = [](std::string_view text) { log_warn("store", {{"segment", std::string{text}}}); };
  keeper_ = std::thread{[this] { keep(); }};
}

void store_share::directory_at(std::uint32_t seat, const host_port& at) {
  if (!seats_->set(seat, at)) return;
  std::lock_guard lock{mutex_};  // whoever looks at the seats waits from then on
  changed_.notify_all();
}

// A directory may be told later, or be away at first; once the segment is mounted it follows by itself.
void store_share::keep() {
  constexpr duration shortest = std::chrono::milliseconds(50), longest = std::chrono::seconds(2);
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return stopping_ || !seats_->all().empty(); });
  auto options = segment_;
  const auto here = std::move(options.directory.own_host);
  options.directory = address_of(seats_);
  if (!here.empty()) options.directory.own_host = here;
  std::unique_ptr<segment_mount> mounted_segment;
  std::string complaint;
  for (auto pause = shortest; !stopping_ && !mounted_segment; pause = std::min(2 * pause, longest)) {
    lock.unlock();
    auto started = segment_mount::start(options);
    const auto why = started ? std::string{} : to_string(started.error());
    if (!started && why != std::exchange(complaint, why)) log_warn("store", {{"problem", why}});
    if (started) log_info("store", {{"mounted", store::readable(options.bytes)}, {"segment", options.name}});
    lock.lock();
    if (started) mounted_segment = std::move(*started);
    else changed_.wait_for(lock, pause, [&] { return stopping_; });
  }
  if (mounted_segment) mounted_bytes_ = options.bytes;
  changed_.wait(lock, [&] { return stopping_; });
  mounted_bytes_ = 0;
  lock.unlock();
  mounted_segment.reset();
}

// The directory is asked without the lock, since its answer may take long.
std::string store_share::metrics_text() {
  std::unique_lock lock{mutex_};
  const auto mounted = mounted_bytes_;
  const auto divided = divided_;
  const bool mounts = keeper_.joinable();
  lock.unlock();
  metric_families of_process;
  if (mounts)
    of_process.value("mooncaf_store_mounted_bytes",
                     "Memory of this process that is mounted in the object store.", mounted);
  if (divided.shared_bytes > 0) {
    const auto both = [&](std::string name, std::string help, std::uint64_t blocks, std::uint64_t objects) {
      of_process.family(std::move(name), std::move(help));
      of_process.sample(blocks, {{"side", "blocks"}});
      of_process.sample(objects, {{"side", "objects"}});
    };
    both("mooncaf_store_shared_bytes", "What KV blocks and objects have of the memory that both share.",
         divided.other_bytes, divided.object_bytes);
    both("mooncaf_store_shared_slabs_total", "Pieces of it that went to either.", divided.slabs_to_other,
         divided.slabs_to_objects);
  }
  const auto text = of_process.text();
  if (!directory_ || !directory_->serves()) return text;
  std::lock_guard one_at_a_time{asking_};
  if (!client_) {
    const auto& own = directory_->at();
    auto made = store_client::connect({address_of(one_seat(own.host, own.port))});
    if (!made) return text;
    client_ = std::move(*made);
  }
  const auto figures = client_->figures();
  const auto segments = client_->mounted();
  const auto tenants = client_->tenants();
  if (!figures || !segments || !tenants) return text;
  return text + store::metrics_text(*figures, *segments, *tenants, nullptr);
}

}  // namespace mooncaf
