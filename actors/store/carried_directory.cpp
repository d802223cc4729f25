#include "actors/store/carried_directory.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "actors/store/directory_options.hpp"
#include "actors/store/store_command.hpp"
#include "runtime/base/replace_file.hpp"
#include "runtime/base/wall_clock.hpp"
#include "runtime/log/log.hpp"
#include "transport/net/socket.hpp"

namespace mooncaf {

namespace {

/// A holder on a host that is gone, or beside a directory that stands still, notices in so long.
constexpr duration holders_notice = std::chrono::seconds(5);
constexpr duration again_after = std::chrono::milliseconds(500);

std::string lead_file(const std::string& folder) { return folder + "/lead"; }

last_lead read_lead(const std::string& folder) {
  last_lead last;
  std::ifstream file{lead_file(folder)};
  return file >> last.term >> last.clock_us ? last : last_lead{};
}

result<void> write_lead(const std::string& folder, const last_lead& last) {
  std::error_code why;
  std::filesystem::create_directories(folder, why);
  if (why) return fail(ec::io_error, folder + ": " + why.message());
  return replace_file(lead_file(folder),
                      std::to_string(last.term) + " " + std::to_string(last.clock_us) + "\n", 0600);
}

/// The seat of a directory that may open later is told before that.
result<std::uint16_t> free_port(const host_port& at) {
  if (at.port != 0) return at.port;
  const auto address = resolve_tcp(at.host, 0);
  if (!address) return fail(address.error());
  const auto listener = listen_tcp(*address);
  if (!listener) return fail(listener.error());
  return bound_port(listener->get());
}

}  // namespace

carried_directory::carried_directory(host_port at, directory_server_options options, std::uint32_t shards)
    : at_(std::move(at)),
      options_(std::move(options)),
      shards_(shards),
      last_(read_lead(options_.state_folder)) {}

result<std::unique_ptr<carried_directory>> carried_directory::open(const host_port& at, key_ring key,
                                                                   const store_options& chosen, bool alone) {
  auto options = store::directory_settings(chosen);
  if (!options) return fail(options.error());
  const auto port = alone ? result<std::uint16_t>{at.port} : free_port(at);
  if (!port) return fail(port.error());
  options->host = at.host;
  options->port = *port;
  options->secret = std::move(key);
  options->state_folder = store::state_folder(chosen.state_folder, *port);
  std::unique_ptr<carried_directory> made{
      new carried_directory({at.host, *port}, std::move(*options), chosen.shards)};
  if (alone) {
    if (const auto started = made->start(); !started) return fail(started.error());
    made->at_.port = made->directory_->port();
    return made;
  }
  made->keeper_ = std::thread{[self = made.get()] { self->keep(); }};
  return made;
}

carried_directory::~carried_directory() {
  {
    std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  changed_.notify_all();
  if (keeper_.joinable()) keeper_.join();
}

bool carried_directory::serves() const {
  std::lock_guard lock{mutex_};
  return directory_ != nullptr;
}

void carried_directory::lead(const lead_right& right) {
  {
    std::lock_guard lock{mutex_};
    right_ = right;
    // Under another term a directory begins anew, as one elsewhere may have served in between.
    if (directory_ && right.term == serving_) serves_by_->extend(right.until);
  }
  changed_.notify_all();
}

result<void> carried_directory::start() {
  auto started = directory_shards::start(options_, shards_);
  if (!started) return fail(started.error());
  directory_ = std::move(*started);
  return {};
}

/// The term is written down before anything is served under it, so that a later life of this process can tell whether
/// its notes are the latest.
result<void> carried_directory::start_under_right() {
  const auto right = right_;
  const auto& folder = options_.state_folder;
  const auto last = read_lead(folder).term;
  if (last != right.led_before && last != right.term)
    if (auto forgotten = directory_shards::forget(folder); !forgotten) return forgotten;
  // A leader that died told its clock a moment before. Of this process's own directories each has numbers above those of
  // the one before it, however soon it follows: by them holders tell the two apart.
  constexpr std::uint64_t moment_us = 2'000'000;
  if (const auto above = std::max(right.numbers_from, numbered_); above != 0)
    options_.numbers_from = above + moment_us;
  const auto clock_us = std::max(wall_clock_us(), options_.numbers_from);
  if (auto written = write_lead(folder, {right.term, clock_us}); !written) return written;
  if (right.led_before != 0) options_.recovery_least = holders_notice;
  numbered_ = clock_us;
  serving_ = right.term;
  serves_by_ = std::make_shared<serving_right>(right.until);
  options_.right = serves_by_;
  return start();
}

void carried_directory::keep() {
  std::unique_lock lock{mutex_};
  std::string complaint;
  while (!stopping_) {
    const auto now = clock_type::now();
    const bool may = now < right_.until;
    // A lapse of a moment is one, too: the right that it had does not come back.
    if (directory_ && (!may || right_.term != serving_ || !serves_by_->lasts(now))) {
      log_info("store", {{"directory", to_string(at_)},
                         {"stands by", may ? "it could not tell in time that it leads; begins anew"
                                           : "another conductor may lead"}});
      auto gone = std::move(directory_);
      lock.unlock();
      gone.reset();
      lock.lock();
      continue;
    }
    if (may && !directory_) {
      const auto done = start_under_right();
      const auto why = done ? std::string{} : to_string(done.error());
      if (done) log_info("store", {{"directory", to_string(at_)}, {"term", std::to_string(serving_)}});
      else if (why != complaint) log_warn("store", {{"directory", to_string(at_)}, {"problem", why}});
      complaint = why;
      if (done) continue;
    }
    const auto until =
        directory_ ? right_.until : clock_type::now() + (may ? again_after : std::chrono::hours(1));
    changed_.wait_until(lock, until);
  }
  directory_.reset();
}

}  // namespace mooncaf
