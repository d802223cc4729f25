#pragma once
// `mooncaf store …`: the object store for people and scripts, and the processes that it is made of.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/command_line.hpp"
#include "config/defaults.hpp"
#include "runtime/base/result.hpp"
#include "runtime/sim/cli/commands.hpp"
#include "storage/objects/client/store_client.hpp"

namespace mooncaf::store {

/// @param args  what follows `store`. @returns the process's exit status: 0, 1 when it failed, 2 when it was
/// called wrongly. The commands that serve claim the stop signals.
int run_command(std::span<const std::string> args, const sim::console& io);

/// Where the directory listens unless it is told otherwise.
inline const std::string default_directory = "127.0.0.1:" + std::to_string(defaults::store::port);

/// The options that all commands of a client have.
struct common_arguments {
  std::string directory{default_directory};
  std::string secret_file, token_file;
  bool json = false;
  std::vector<cli::argument> list();
  /// The directory's address with the key that this cluster's store uses.
  result<directory_address> address() const;
  /// @param everyone  the objects of all tenants, under the store's own names for them (`key_scope`).
  result<std::unique_ptr<store_client>> connect(bool everyone = false) const;
};

int complain(const sim::console& io, const error& why, int status);
/// Reads the options. @returns nothing to go on, else the status to end with.
std::optional<int> begin(cli::command_line& line, std::span<const std::string> args, const sim::console& io);
/// A value with its unit: "1.5 GiB".
std::string readable(std::uint64_t bytes);

/// The folder where a directory at this port keeps what the next one has to know; empty: none.
/// @param given  by the user
std::string state_folder(const std::string& given, std::uint16_t port);

int serve_directory(std::span<const std::string> args, const sim::console& io);
int serve_http(std::span<const std::string> args, const sim::console& io);
int mount_segment(std::span<const std::string> args, const sim::console& io);
int put_object(std::span<const std::string> args, const sim::console& io);
int get_object(std::span<const std::string> args, const sim::console& io);
int stat_objects(std::span<const std::string> args, const sim::console& io);
int list_objects(std::span<const std::string> args, const sim::console& io);
int remove_objects(std::span<const std::string> args, const sim::console& io);
int drain_segment(std::span<const std::string> args, const sim::console& io);
int place_replicas(std::span<const std::string> args, const sim::console& io);
int list_segments(std::span<const std::string> args, const sim::console& io);
int list_tenants(std::span<const std::string> args, const sim::console& io);
int watch_store(std::span<const std::string> args, const sim::console& io);
int measure(std::span<const std::string> args, const sim::console& io);

}  // namespace mooncaf::store
