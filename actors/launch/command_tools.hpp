#pragma once
// What the commands on a cluster's file have in common.

#include <filesystem>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/launch/cluster_command.hpp"
#include "config/command_line.hpp"
#include "runtime/base/replace_file.hpp"

namespace mooncaf::launch {

/// Reads the options, and the file that is the first word. @returns nothing to go on, else the status to end with.
inline std::optional<int> begin(cli::command_line& line, std::span<const std::string> args,
                                std::size_t words_max, const sim::console& io) {
  const auto read = cli::parse(line, args);
  if (!read) return complain(io, read.error(), 2);
  if (*read == cli::parsed::help) {
    cli::print_help(line, io.out);
    return 0;
  }
  if (line.words.empty() || line.words.size() > words_max)
    return complain(io, {ec::invalid_argument, "usage: " + line.usage + "; --help explains"}, 2);
  return std::nullopt;
}

/// Asks all hosts of the list at the same time.
template <class Ask>
auto at_once(const std::vector<std::size_t>& hosts, Ask ask) {
  std::vector<std::future<decltype(ask(std::size_t{}))>> open;
  for (const auto host : hosts) open.push_back(std::async(std::launch::async, ask, host));
  std::vector<decltype(ask(std::size_t{}))> answers;
  for (auto& one : open) answers.push_back(one.get());
  return answers;
}

inline std::vector<std::size_t> hosts_of(const cluster_access& cluster) {
  std::vector<std::size_t> all(cluster.plan().hosts.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

/// The operator's own file, with its permissions; where it is a link, what it links to.
inline result<void> rewrite(const std::string& file, const std::string& text) {
  std::error_code failed;
  const auto path = std::filesystem::canonical(file, failed);
  const auto mode = failed ? 0 : static_cast<unsigned>(std::filesystem::status(path, failed).permissions());
  if (failed) return fail(ec::io_error, "cannot write " + file + ": " + failed.message());
  return replace_file(path, text, mode);
}

}  // namespace mooncaf::launch
