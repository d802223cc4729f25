#include "actors/store/store_share.hpp"

#include <algorithm>

#include "actors/metrics/metric_families.hpp"
#include "actors/store/directory_options.hpp"
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

directory_address store_share::address_of(const host_port& at) const {
  directory_address to;
  to.host = at.host;
  to.port = at.port;
  to.secret = key_;
  to.own_host = this_host();
  return to;
}

result<std::uint16_t> store_share::open_directory(const host_port& at, const store_options& chosen) {
  auto options = store::directory_settings(chosen);
  if (!options) return fail(options.error());
  options->host = at.host;
  options->port = at.port;
  options->secret = key_;
  options->state_folder = store::state_folder(chosen.state_folder, at.port);
  auto started = directory_shards::start(*options, chosen.shards);
  if (!started) return fail(started.error());
  directory_ = std::move(*started);
  std::lock_guard lock{mutex_};
  own_ = {at.host, directory_->port()};
  return own_.port;
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

void store_share::directory_at(const host_port& at) {
  {
    std::lock_guard lock{mutex_};
    wanted_ = at;
  }
  changed_.notify_all();
}

/// @returns whether it is still that directory that is wanted; false when it is time to stop.
bool store_share::wait(std::unique_lock<std::mutex>& lock, duration pause, const host_port& at) {
  changed_.wait_for(lock, pause, [&] { return stopping_ || wanted_ != at; });
  return !stopping_ && wanted_ == at;
}

// A directory may be told later, change, or be away: the segment is mounted in whichever is wanted last.
void store_share::keep() {
  constexpr duration shortest = std::chrono::milliseconds(50), longest = std::chrono::seconds(2);
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || wanted_.port != 0; });
    if (stopping_) return;
    const auto at = wanted_;
    auto options = segment_;
    const auto here = std::move(options.directory.own_host);
    options.directory = address_of(at);
    if (!here.empty()) options.directory.own_host = here;
    std::unique_ptr<segment_mount> mounted_segment;
    std::string complaint;
    auto pause = shortest;
    do {
      lock.unlock();
      auto started = segment_mount::start(options);
      const auto why = started ? std::string{} : to_string(started.error());
      if (!started && why != std::exchange(complaint, why))
        log_warn("store", {{"directory", to_string(at)}, {"problem", why}});
      if (started)
        log_info("store", {{"mounted", store::readable(options.bytes)},
                           {"segment", options.name},
                           {"directory", to_string(at)}});
      lock.lock();
      if (!started) continue;
      mounted_segment = std::move(*started);
      mounted_bytes_ = options.bytes;
      break;
    } while (wait(lock, std::exchange(pause, std::min(2 * pause, longest)), at));
    changed_.wait(lock, [&] { return stopping_ || wanted_ != at; });
    mounted_bytes_ = 0;
    lock.unlock();
    mounted_segment.reset();
    lock.lock();
  }
}

// The directory is asked without the lock, since its answer may take long.
std::string store_share::metrics_text() {
  std::unique_lock lock{mutex_};
  const auto own = own_;
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
  if (own.port == 0) return text;
  std::lock_guard one_at_a_time{asking_};
  if (!client_) {
    auto made = store_client::connect({address_of(own)});
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
