// The commands that say where objects lie.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "actors/store/store_command.hpp"
#include "storage/objects/table/object_table.hpp"

namespace mooncaf::store {

// This client moves the objects, so it stays until the segment is empty or no object finds room elsewhere.
int drain_segment(std::span<const std::string> args, const sim::console& io) {
  common_arguments common;
  bool undo = false;
  cli::command_line line{
      "mooncaf store drain SEGMENT [options]",
      "Moves all objects of a segment to others, as far as there is room that is free, and places "
      "none there any more; then its process can be stopped.",
      {},
      {}};
  line.arguments = common.list();
  line.arguments.push_back(cli::flag("undo", "objects may be placed there again", undo));
  if (const auto status = begin(line, args, io)) return *status;
  if (line.words.size() != 1) return complain(io, {ec::invalid_argument, "drain takes a SEGMENT"}, 2);
  const auto store = common.connect(true);  // objects of every tenant lie there
  if (!store) return complain(io, store.error(), 1);
  const auto& segment = line.words[0];
  const auto code = (*store)->drain(segment, !undo);
  if (code != store_code::ok)
    return complain(io, {ec::none, segment + ": " + std::string{to_string(code)}}, 1);
  const auto tell = [&](std::uint64_t moved) {
    if (io.interactive) io.err << segment << ": " << moved << " objects moved\n";
  };
  const auto all = undo ? store_client::emptied{} : (*store)->empty(segment, time_point::max(), tell);
  if (common.json) io.out << nlohmann::json{{"moved", all.moved}, {"left", all.left}}.dump(2) << "\n";
  else io.out << all.moved << " moved\n";
  if (all.left == 0) return 0;
  return complain(io,
                  {ec::none, segment + ": " + std::to_string(all.left) +
                                 " objects are left: " + std::string{to_string(all.code)}},
                  1);
}

// A move carries number and places of the replicas, so one command changes both.
int place_replicas(std::span<const std::string> args, const sim::console& io) {
  common_arguments common;
  put_policy policy;
  std::string to;
  policy.replicas = 0;
  cli::command_line line{
      "mooncaf store replicas KEY… [options]",
      "Copies objects to other places and gives up those where they are; nobody makes way.",
      {},
      {}};
  line.arguments = common.list();
  line.arguments.push_back(cli::whole("number", "copies, each on another segment; 0: as many as there are",
                                      policy.replicas, 0, object_table::replicas_max));
  line.arguments.push_back(cli::text("to", "SEGMENT", "where the first is to lie, if there is room", to));
  if (const auto status = begin(line, args, io)) return *status;
  if (line.words.empty()) return complain(io, {ec::invalid_argument, "replicas takes KEYs"}, 2);
  if (!to.empty()) policy.preferred.push_back(to);
  const auto store = common.connect();
  if (!store) return complain(io, store.error(), 1);
  const std::vector<std::string_view> keys{line.words.begin(), line.words.end()};
  const auto codes = (*store)->move(keys, policy);
  std::uint64_t moved = 0;
  int status = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    moved += codes[i] == store_code::ok;
    if (codes[i] != store_code::ok)
      status = complain(io, {ec::none, line.words[i] + ": " + std::string{to_string(codes[i])}}, 1);
  }
  if (common.json) io.out << nlohmann::json{{"moved", moved}}.dump(2) << "\n";
  else io.out << moved << " moved\n";
  return status;
}

}  // namespace mooncaf::store
