#pragma once
// The file that `mooncaf up` reads: a section for each host, and the server's own sections for all of them.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/declaration.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf::launch {

/// A kind of process that a host may have, by the key that says how many.
struct part {
  std::string_view key;
  std::string_view roles;  ///< as `--role` takes them
  std::uint32_t most;      ///< on one host
  std::uint32_t stage;     ///< parts of a lower one start first
};

/// The conductor first, then memory for blocks, then workers, then gateways.
inline constexpr std::array<part, 7> parts{{{"conductor", "conductor", 1, 0},
                                            {"cache", "cache", 64, 1},
                                            {"prefill", "prefill,cache", 64, 2},
                                            {"decode", "decode", 64, 2},
                                            {"coupled", "prefill,decode,cache", 64, 2},
                                            {"engine", "engine", 64, 2},
                                            {"gateway", "gateway", 1, 3}}};
inline constexpr std::uint32_t stages = 4;

/// Stages of a group but the leader's, at most.
inline constexpr std::size_t ranks_most = 63;

/// Null if there is none.
const part* find_part(std::string_view key);

/// A value of one of the server's options.
struct setting {
  const config::declaration* option = nullptr;
  std::string value;
};

struct host_entry {
  std::string name;
  std::string address;  ///< by which the other hosts reach it
  std::string ssh;      ///< destination for the ssh client; the address unless given
  bool local = false;   ///< this machine: no ssh
  std::map<std::string, std::uint32_t, std::less<>> counts;  ///< by `part::key`
  /// By `part::key`: the hosts of the other stages of each such process's pipeline group, which leads from the last stage.
  std::map<std::string, std::vector<std::string>, std::less<>> ranks;
  std::vector<setting> settings;  ///< of this host's processes alone

  std::uint32_t count(std::string_view key) const;
};

struct cluster_spec {
  std::string name;         ///< empty: not given
  std::string binary;       ///< of mooncaf on the hosts; empty: "mooncaf", on this machine the running one
  std::string secret_file;  ///< of the operator; empty: one is made
  std::uint16_t port = 0;   ///< of the conductor
  duration ready_within{};  ///< for a process to become ready
  duration stop_within{};   ///< for a process to end when it is told to
  std::vector<setting> shared;
  std::vector<host_entry> hosts;
};

/// @param file  the file's name, for error texts.
/// @error `ec::invalid_argument`, "FILE:LINE: …" with the key, the value and its range.
result<cluster_spec> read_cluster(std::string_view text, std::string_view file);

/// The file's text with more or fewer processes of a part.
/// @param host  name of the host to change; empty: of the hosts with that part the one with fewest, or with most when
/// processes go.
/// @error `ec::invalid_argument`: no such part or host, or a count out of range.
result<std::string> scaled(std::string_view text, std::string_view file, std::string_view part_key, int more,
                           std::string_view host);

inline constexpr std::uint32_t scale_most = 64;  ///< by or to which `mooncaf scale` changes a count

/// … with `count` processes of a part on all hosts together, or on `host`.
result<std::string> scaled_to(std::string_view text, std::string_view file, std::string_view part_key,
                              std::uint32_t count, std::string_view host);

}  // namespace mooncaf::launch
