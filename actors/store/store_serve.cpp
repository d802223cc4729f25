// The processes of the store: the directory, the processes that mount memory in it, and the HTTP endpoint.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "actors/cluster/shutdown.hpp"
#include "actors/store/directory_options.hpp"
#include "actors/store/store_command.hpp"
#include "actors/store/store_http.hpp"
#include "config/exit_codes.hpp"
#include "config/value.hpp"
#include "runtime/base/host_place.hpp"
#include "runtime/log/log.hpp"
#include "storage/memory_room.hpp"
#include "storage/objects/directory/directory_shards.hpp"
#include "storage/objects/disk/rocksdb_object_disk.hpp"
#include "storage/objects/mount/segment_mount.hpp"
#include "transport/net/secret_file.hpp"

namespace mooncaf::store {

namespace {

std::vector<cli::argument> joined(std::vector<cli::argument> first, std::vector<cli::argument> second) {
  for (auto& a : second) first.push_back(std::move(a));
  return first;
}

/// Off this machine the user's own secret, which was made here, would open nothing.
result<void> check_secret(const common_arguments& common, const std::string& host) {
  if (config::is_loopback(host) || !common.secret_file.empty()) return {};
  return fail(ec::invalid_argument, "--cluster-secret-file is needed once " + host +
                                        " is no loopback address; all "
                                        "processes of the store share the file's secret");
}

/// A directory that is not there yet is waited for; what else may be wrong does not pass by itself.
result<std::unique_ptr<segment_mount>> mount_when_there(const segment_mount_options& options) {
  const stop_at_once meanwhile{"was not ready yet"};
  std::string said;
  for (duration pause = std::chrono::milliseconds(50);;
       pause = std::min<duration>(2 * pause, std::chrono::seconds(2))) {
    auto started = segment_mount::start(options);
    if (started || (started.error() != ec::peer_lost && started.error() != ec::timed_out)) return started;
    const auto why = to_string(started.error()) + "; trying again";
    if (why != std::exchange(said, why)) log_warn("segment", {{"message", why}});
    std::this_thread::sleep_for(pause);
  }
}

int until_stopped(const std::string& what, const std::string& at) {
  log_info("ready", {{"store", what}, {"at", at}});
  log_info("stopping", {{"signal", std::to_string(wait_for_stop())}});
  return 0;
}

}  // namespace

std::string state_folder(const std::string& given, std::uint16_t port) {
  const auto secret = secret_file::own_path();
  if (!given.empty() || port == 0 || !secret) return given;
  return (std::filesystem::path{*secret}.parent_path() / ("store-" + std::to_string(port))).string();
}

int serve_directory(std::span<const std::string> args, const sim::console& io) {
  common_arguments common;
  std::string listen{default_directory};
  auto chosen = default_options();
  cli::command_line line{"mooncaf store directory [options]", "Knows where every object is.", {}, {}};
  line.arguments = joined({cli::text("listen", "HOST:PORT",
                                     "where clients and holders connect, 127.0.0.1:7460 by default", listen),
                           cli::text("cluster-secret-file", "FILE",
                                     "the cluster's secret; the user's own by default", common.secret_file)},
                          directory_arguments(chosen));
  if (const auto status = begin(line, args, io)) return *status;
  const auto at = config::parse_endpoint(listen);
  if (!at) return complain(io, {ec::invalid_argument, "--listen: '" + listen + "' is not HOST:PORT"}, 2);
  if (const auto ok = check_secret(common, at->host); !ok) return complain(io, ok.error(), 2);
  if (const auto fit = check_watermarks(chosen.store); !fit) return complain(io, fit.error(), 2);
  const auto own = common.address();
  if (!own) return complain(io, own.error(), static_cast<int>(exit_code::files));
  auto options = directory_settings(chosen.store);
  if (!options) return complain(io, options.error(), static_cast<int>(exit_code::files));
  options->host = at->host;
  options->port = at->port;
  options->secret = own->secret;
  options->state_folder = state_folder(chosen.store.state_folder, at->port);
  claim_stop_signals();
  configure_log(log_level::info, false, "directory");
  const auto server = directory_shards::start(*options, chosen.store.shards);
  if (!server) return complain(io, server.error(), static_cast<int>(exit_code::address));
  return until_stopped("directory", at->host + ":" + std::to_string((*server)->port()));
}

// Everything that a user can have got wrong is checked before the directory is asked.
int serve_http(std::span<const std::string> args, const sim::console& io) {
  common_arguments common;
  store_http_options options;
  std::string listen = "127.0.0.1:7461", token_file;
  bool tenants = false;
  cli::command_line line{
      "mooncaf store http [options]",
      "The store over HTTP: /objects/KEY, /segments, /get_all_segments, /metrics, /health.",
      {},
      {}};
  auto own = common.list();
  std::erase_if(own, [](const cli::argument& a) { return a.name == "json" || a.name == "token-file"; });
  line.arguments = joined(
      std::move(own),
      {cli::text("listen", "HOST:PORT", "where it answers, 127.0.0.1:7461 by default", listen),
       cli::text("token-file", "FILE", "its first line is what clients must bring: Authorization: Bearer …",
                 token_file),
       cli::text("tls-certificate-file", "FILE",
                 "PEM file with its certificate and those that signed it; it is HTTPS then",
                 options.tls_certificate_file),
       cli::text("tls-key-file", "FILE", "PEM file with that certificate's private key",
                 options.tls_key_file),
       cli::flag("tenants", "take tenants' tokens, too: who brings one has that tenant's objects", tenants)});
  if (const auto status = begin(line, args, io)) return *status;
  const auto at = config::parse_endpoint(listen);
  if (!at) return complain(io, {ec::invalid_argument, "--listen: '" + listen + "' is not HOST:PORT"}, 2);
  std::ifstream file{token_file};
  if (!token_file.empty() && (!std::getline(file, options.token) || options.token.empty()))
    return complain(io, {ec::io_error, token_file + ": has no first line"},
                    static_cast<int>(exit_code::files));
  if (!config::is_loopback(at->host) && options.token.empty())
    return complain(
        io, {ec::invalid_argument, "--token-file is needed once " + at->host + " is no loopback address"}, 2);
  if (const auto fit = check_tls_files(options.tls_certificate_file, options.tls_key_file); !fit)
    return complain(io, fit.error(), static_cast<int>(exit_code::files));
  auto store = common.connect();
  if (!store) return complain(io, store.error(), 1);
  if (tenants) options.tenants_at = common.address().value();
  options.host = at->host;
  options.port = at->port;
  claim_stop_signals();
  configure_log(log_level::info, false, "http");
  const auto endpoint = store_http::start(std::move(options), std::move(*store));
  if (!endpoint) return complain(io, endpoint.error(), static_cast<int>(exit_code::address));
  return until_stopped("http", at->host + ":" + std::to_string((*endpoint)->port()));
}

// Everything that a user can have got wrong is checked before memory is taken; so this is one long list.
int mount_segment(std::span<const std::string> args, const sim::console& io) {
  common_arguments common;
  std::string size = "1GiB", listen = "127.0.0.1:0", advertise,
              name = "segment-" + std::to_string(::getpid());
  std::string ssd_path, ssd_size = config::format_size(defaults::store::ssd_size);
  disk_policy policy{write_policy::write_back, defaults::store::selective_hits,
                     defaults::store::promote_hits};
  bool no_tcp = false, page_cache = false, no_pack = false;
  auto chosen = default_options();
  cli::command_line line{
      "mooncaf store mount [options]", "Mounts memory of this machine in the store.", {}, {}};
  line.arguments = joined(
      common.list(),
      {cli::text("size", "SIZE", "how much, such as 4GiB; 1GiB by default", size),
       cli::text("name", "NAME", "of the segment, unique in the store", name),
       cli::text("data-listen", "HOST:PORT", "where other hosts read and write it, 127.0.0.1:0 by default",
                 listen),
       cli::text("advertise", "HOST", "by what name other hosts reach it; that of --data-listen by default",
                 advertise),
       argument_of("store-endpoint-port", chosen), argument_of("store-location", chosen),
       argument_of("store-protocol", chosen),
       cli::flag("local-only", "serve processes of this host alone", no_tcp),
       cli::text("ssd-path", "DIR", "folder on an SSD for what leaves the memory; none by default", ssd_path),
       cli::text("ssd-size", "SIZE", "room there, " + ssd_size + " by default", ssd_size),
       cli::choice("write-policy",
                   "when an object goes to SSD: when it leaves the memory, at once, or after some uses",
                   policy.write),
       cli::whole("selective-hits", "uses after which write_through_selective writes, 2 by default",
                  policy.save_hits, 1, 1000),
       cli::whole("promote-hits",
                  "uses after which an object that was read from SSD stays in memory, 2 by default",
                  policy.promote_hits, 1, 1000),
       cli::flag("page-cache", "read and write the SSD through the page cache", page_cache),
       cli::flag("no-ssd-pack", "leave 16-bit floating-point numbers on the SSD as they are", no_pack)});
  std::erase_if(line.arguments,
                [](const cli::argument& a) { return a.name == "json" || a.name == "token-file"; });
  if (const auto status = begin(line, args, io)) return *status;
  const auto bytes = config::parse_size(size);
  if (!bytes || *bytes == 0)
    return complain(io, {ec::invalid_argument, "--size: '" + size + "' is no size, such as 4GiB"}, 2);
  const auto at = config::parse_endpoint(listen);
  if (!at) return complain(io, {ec::invalid_argument, "--data-listen: '" + listen + "' is not HOST:PORT"}, 2);
  if (const auto ok = check_secret(common, at->host); !ok) return complain(io, ok.error(), 2);
  const auto room = memory_room_now();
  if (const auto fits = room ? check_arena_fits("size", *bytes, *room) : result<std::string>{""}; !fits)
    return complain(io, fits.error(), static_cast<int>(exit_code::resources));
  auto directory = common.address();
  if (!directory) return complain(io, directory.error(), static_cast<int>(exit_code::files));
  segment_mount_options options;
  options.directory = std::move(*directory);
  if (const auto fit = check_location(chosen.store); !fit) return complain(io, fit.error(), 2);
  options.directory.own_host = host_at(chosen.store.location, options.directory.own_host);
  options.directory.newest = chosen.store.protocol;
  options.name = name;
  options.bytes = *bytes;
  options.tcp = !no_tcp;
  options.listen_host = at->host;
  options.data_port = at->port;
  options.advertised_host = advertise;
  options.endpoint_port = chosen.store.endpoint_port;
  options.log = [](std::string_view text) { log_warn("segment", {{"message", text}}); };
  claim_stop_signals();
  configure_log(log_level::info, false, name);
  if (!ssd_path.empty()) {
    const auto room_there = config::parse_size(ssd_size);
    if (!room_there || *room_there < 16 * MiB)
      return complain(io, {ec::invalid_argument, "--ssd-size: '" + ssd_size + "' is no size from 16MiB up"},
                      2);
    auto disk =
        rocksdb_object_disk::open({ssd_path, *room_there, policy, !page_cache, options.log, true, !no_pack});
    if (!disk) return complain(io, disk.error(), static_cast<int>(exit_code::files));
    log_info("ssd", {{"path", ssd_path}, {"objects", std::to_string((*disk)->contents().size())}});
    options.disk = std::move(*disk);
  }
  const auto mounted = mount_when_there(options);
  if (!mounted)
    return complain(io, mounted.error(), static_cast<int>(exit_code_of(mounted.error(), exit_code::cluster)));
  return until_stopped("segment " + name, readable(*bytes));
}

}  // namespace mooncaf::store
