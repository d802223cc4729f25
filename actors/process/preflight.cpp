#include "actors/process/preflight.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>

#include "actors/cluster/host_names.hpp"
#include "actors/http/http_server.hpp"
#include "actors/store/tenants_file.hpp"
#include "config/device_name.hpp"
#include "gpu/cuda/cuda_device.hpp"
#include "runtime/api/api_keys.hpp"
#include "storage/memory_room.hpp"

namespace mooncaf {

namespace {

std::string message_of(int number) { return std::generic_category().message(number); }

const char* advice(int number) {
  if (number == EADDRINUSE) return "another process has it; choose another port, or 0 for any free one";
  if (number == EACCES) return "ports below 1024 need a privilege; choose a higher one";
  if (number == EADDRNOTAVAIL) return "no network interface of this machine has that address";
  return "";
}

/// Also opens the driver and loads the kernels: a defect there is told before the weights are read.
result<void> check_device(const model_options& m) {
  const auto gpu = config::cuda_ordinal(m.device);
  for (std::uint32_t part = 0; gpu && part < m.pipeline * m.tensor; ++part) {
    const auto opened = cuda::open_cuda_driver(*gpu + part);
    if (!opened) return fail(opened.error().code, "device: " + opened.error().detail);
  }
  return {};
}

/// Opens the address and closes it again.
result<void> check_can_listen(const std::string& option, const host_port& at) {
  const auto refused = [&](const std::string& why, const std::string& what_to_do) {
    return fail(ec::io_error, "cannot listen on " + to_string(at) + " (--" + option + "): " + why +
                                  (what_to_do.empty() ? "" : "; " + what_to_do));
  };
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
  if (status != 0)
    return refused(::gai_strerror(status), "give an address of this machine, or a name that has one");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses{found, ::freeaddrinfo};
  int problem = 0;
  for (const auto* a = found; a != nullptr; a = a->ai_next) {
    const unique_fd fd{::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const int on = 1;
    if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    // Only listening tells: two sockets may share an address until one of them does.
    if (fd && ::bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(fd.get(), 1) == 0) return {};
    problem = errno;
  }
  return refused(message_of(problem), advice(problem));
}

/// A predecessor is there to give its listening socket; whether it is the right one shows when it does.
bool handed_over(const std::string& path) {
  std::error_code none;
  return !path.empty() && std::filesystem::is_socket(path, none);
}

result<void> check_keys(const gateway_options& o) {
  const auto keys = api_keys::load(o);
  return keys ? result<void>{} : fail(keys.error());
}

result<void> check_folder(const std::string& option, const std::string& path) {
  if (path.empty()) return {};
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (!failed && ::access(path.c_str(), R_OK | W_OK | X_OK) != 0) failed = {errno, std::generic_category()};
  if (!failed) return {};
  return fail(ec::io_error, "cannot use the folder " + path + " (--" + option + "): " + failed.message() +
                                "; it must be one that this process's user may read and write");
}

result<void> check_tenants(const store_options& o) {
  const auto all = store::load_tenants(o.tenants_file);
  return all ? result<void>{} : fail(all.error());
}

}  // namespace

std::optional<preflight_error> check_before_loading(const options& o, std::vector<std::string>& warnings) {
  const bool blocks = serves_model(o) && (o.cluster.cache || o.cluster.prefill || o.cluster.decode);
  const bool mounts = o.cluster.cache && o.store.dram_bytes > 0;
  const auto directory = directory_listen(o);
  const bool computes = o.cluster.prefill || o.cluster.decode || o.cluster.rank;
  const bool succeeds = o.cluster.gateway && handed_over(o.gateway.http_handover);
  const auto room = [&]() -> result<void> {
    const auto known = memory_room_now();
    // Whether the conductor of a model carries a store is not known before it is found.
    const bool mounted = mounts && (directory || !blocks);
    const auto wanted =
        (blocks ? o.cache.dram_bytes + o.store.shared_bytes : 0) + (mounted ? o.store.dram_bytes : 0);
    if (wanted == 0 || !known) return {};
    const std::string what = !mounted ? "cache-dram" : blocks ? "cache-dram and store-dram" : "store-dram";
    auto fits = check_arena_fits(what, wanted, *known);
    if (!fits) return fail(fits.error());
    if (!fits->empty()) warnings.push_back(*fits);
    return {};
  };
  const auto listen = [](bool wanted, const char* option, const host_port& at) {
    return wanted ? check_can_listen(option, at) : result<void>{};
  };
  const std::pair<exit_code, std::function<result<void>()>> steps[] = {
      {exit_code::options, [&] { return computes ? check_device(o.model) : result<void>{}; }},
      {exit_code::address, [&] { return listen(true, "listen", o.cluster.listen); }},
      {exit_code::address, [&] { return listen(o.cluster.gateway && !succeeds, "http", o.gateway.http); }},
      {exit_code::address,
       [&] { return listen(o.metrics.enabled && !succeeds, "metrics-listen", o.metrics.listen); }},
      {exit_code::address,
       [&] { return listen(blocks || mounts || o.cluster.rank, "data-listen", o.transport.data_listen); }},
      {exit_code::address,
       [&] { return directory ? listen(true, "store-listen", *directory) : result<void>{}; }},
      {exit_code::files, [&] { return directory ? check_tenants(o.store) : result<void>{}; }},
      {exit_code::files, [&] { return o.cluster.gateway ? check_keys(o.gateway) : result<void>{}; }},
      {exit_code::files,
       [&] { return check_tls_files(o.gateway.tls_certificate_file, o.gateway.tls_key_file); }},
      {exit_code::files, [&] { return check_folder("ssd-path", blocks ? o.cache.ssd_path : ""); }},
      {exit_code::files, [&] { return check_folder("store-ssd-path", mounts ? o.store.ssd_path : ""); }},
      {exit_code::resources, room},
  };
  for (const auto& [code, step] : steps) {
    if (auto done = step(); !done) return preflight_error{code, done.error()};
  }
  return std::nullopt;
}

}  // namespace mooncaf
