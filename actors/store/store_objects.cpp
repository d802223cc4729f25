// The commands that read and write objects.

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "actors/store/store_command.hpp"
#include "actors/store/store_page.hpp"
#include "runtime/base/host_place.hpp"
#include "storage/objects/table/object_table.hpp"

namespace mooncaf::store {

namespace {

using nlohmann::json;

/// Keys are any bytes; JSON is UTF-8.
std::string print(const json& what) {
  return what.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

int failed(const sim::console& io, const std::string& key, store_code code) {
  return complain(io,
                  {ec::none, key + ": " + std::string{to_string(code)} + " (" +
                                 std::to_string(static_cast<int>(code)) + ")"},
                  1);
}

std::vector<cli::argument> with(common_arguments& common, std::vector<cli::argument> more) {
  auto all = common.list();
  for (auto& a : more) all.push_back(std::move(a));
  return all;
}

std::vector<std::string_view> views(const std::vector<std::string>& words) {
  return {words.begin(), words.end()};
}

/// Everything that can be read, if it is no more than `most`: a device or a pipe may never end.
result<std::string> read_whole(std::istream& from, const std::string& name, std::uint64_t most) {
  constexpr std::size_t step = 1 * MiB;
  std::string bytes;
  while (from && bytes.size() <= most) {
    const auto before = bytes.size();
    bytes.resize(before + step);
    from.read(bytes.data() + before, step);
    bytes.resize(before + static_cast<std::size_t>(from.gcount()));
  }
  if (from.bad()) return fail(ec::io_error, name + ": cannot be read");
  if (bytes.size() > most)
    return fail(ec::out_of_space, name + " is larger than all of the store's memory, " + readable(most));
  return bytes;
}

double seconds_since(time_point begin) { return to_seconds(clock_type::now() - begin); }

void report(const sim::console& io, bool as_json, const std::string& key, std::uint64_t bytes, double seconds,
            std::ostream& to) {
  const auto rate = static_cast<double>(bytes) / seconds;
  if (as_json) to << print({{"key", key}, {"bytes", bytes}, {"seconds", seconds}, {"bytes_per_s", rate}});
  else if (io.interactive)
    io.err << key << ": " << readable(bytes) << " in " << seconds << " s, "
           << readable(static_cast<std::uint64_t>(rate)) << "/s\n";
}

}  // namespace

// The whole value is read first: an object is visible with all its bytes or not at all.
int put_object(std::span<const std::string> args, const sim::console& io) {
  common_arguments common;
  put_policy policy;
  std::string parent, group;
  double ttl = 0, cost = 0;
  cli::command_line line{
      "mooncaf store put KEY [FILE] [options]", "Stores a file, or standard input, under a key.", {}, {}};
  line.arguments =
      with(common, {cli::whole("replicas", "copies, each on another segment", policy.replicas, 1,
                               object_table::replicas_max),
                    cli::flag("hard-pin", "never evicted", policy.hard_pin),
                    cli::flag("soft-pin", "evicted last", policy.soft_pin),
                    cli::text("group", "NAME", "leased and evicted together with the others of it", group),
                    cli::text("parent", "KEY", "without it this one is useless: it leaves later", parent),
                    cli::real("cost",
                              "of making it again, in any unit that all writers agree on; 0: "
                              "not known",
                              cost, 0, 1e30),
                    cli::seconds("ttl", "gone after this long; 0 for no limit", ttl, 0, 1e9)});
  if (const auto status = begin(line, args, io)) return *status;
  if (line.words.empty() || line.words.size() > 2)
    return complain(io, {ec::invalid_argument, "put takes a KEY and a FILE"}, 2);
  policy.ttl = from_seconds(ttl);
  const auto& key = line.words[0];
  const auto path = line.words.size() == 2 ? line.words[1] : "-";
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  if (path != "-" && !file) return complain(io, {ec::io_error, path + ": cannot be read"}, 1);
  const auto store = common.connect();
  if (!store) return complain(io, store.error(), 1);
  const auto counts = (*store)->counts();
  if (!counts) return complain(io, counts.error(), 1);
  const auto bytes =
      read_whole(path == "-" ? std::cin : file, path == "-" ? "standard input" : path, counts->total_bytes);
  if (!bytes) return complain(io, bytes.error(), 1);
  const auto began = clock_type::now();
  const outgoing_object item{key, {std::as_bytes(std::span{*bytes})}, {group, parent, cost}};
  const auto code = (*store)->put({&item, 1}, policy).at(0);
  if (code != store_code::ok) return failed(io, key, code);
  report(io, common.json, key, bytes->size(), seconds_since(began), io.out);
  return 0;
}

// The file is written only after the checksum has agreed, so a bad value leaves no file.
int get_object(std::span<const std::string> args, const sim::console& io) {
  common_arguments common;
  cli::command_line line{
      "mooncaf store get KEY [FILE] [options]", "Writes an object to a file, or to standard output.", {}, {}};
  line.arguments = common.list();
  if (const auto status = begin(line, args, io)) return *status;
  if (line.words.empty() || line.words.size() > 2)
    return complain(io, {ec::invalid_argument, "get takes a KEY and a FILE"}, 2);
  const auto store = common.connect();
  if (!store) return complain(io, store.error(), 1);
  const auto& key = line.words[0];
  const std::string_view asked = key;
  const auto began = clock_type::now();
  const auto found = (*store)->find({&asked, 1}).at(0);
  if (found.code != store_code::ok) return failed(io, key, found.code);
  std::string bytes(found.size, '\0');
  const auto whole = std::as_writable_bytes(std::span{bytes});
  if (const auto code = (*store)->read(found, {&whole, 1}); code != store_code::ok)
    return failed(io, key, code);
  const auto seconds = seconds_since(began);
  const bool to_file = line.words.size() == 2 && line.words[1] != "-";
  if (to_file) {
    std::ofstream file{line.words[1], std::ios::binary};
    if (!(file << bytes).flush())
      return complain(io, {ec::io_error, line.words[1] + ": cannot be written"}, 1);
  } else {
    io.out << bytes << std::flush;
  }
  report(io, common.json, key, bytes.size(), seconds, to_file ? io.out : io.err);
  return 0;
}

// Without a key it tells the counts of the whole store, else of each object; text and JSON are made side by
// side, so that neither lacks a field.
int stat_objects(std::span<const std::string> args, const sim::console& io) {
  common_arguments common;
  cli::command_line line{"mooncaf store stat [KEY…] [options]",
                         "Size and places of objects; without a key, of the whole store.",
                         {},
                         {}};
  line.arguments = common.list();
  if (const auto status = begin(line, args, io)) return *status;
  const auto store = common.connect();
  if (!store) return complain(io, store.error(), 1);
  if (line.words.empty()) {
    const auto c = (*store)->counts();
    if (!c) return complain(io, c.error(), 1);
    const auto all = as_json(*c);
    if (common.json) {
      io.out << print(all);
    } else {
      for (const auto& [name, value] : all.items())
        io.out << name << std::string(24 - name.size(), ' ') << value << "\n";
    }
    return 0;
  }
  const auto segments = (*store)->segments();
  if (!segments) return complain(io, segments.error(), 1);
  const auto name_of = [&](std::uint32_t id) -> std::string {
    for (const auto& s : *segments)
      if (s.view.id == id) return s.view.name;
    return "?";
  };
  int status = 0;
  json all = json::array();
  const auto seen = (*store)->look(views(line.words));
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const auto& key = line.words[i];
    if (seen[i].code != store_code::ok) status = failed(io, key, seen[i].code);
    if (seen[i].code != store_code::ok) continue;
    json places = json::array();
    std::string text;
    for (const auto& p : seen[i].places) {
      places.push_back({{"segment", name_of(p.segment)}, {"offset", p.offset}, {"bytes", p.bytes}});
      text += " " + name_of(p.segment) + "+" + std::to_string(p.offset);
      if (p.bytes != seen[i].size) text += ":" + std::to_string(p.bytes);  // a stripe
    }
    json disks = json::array();
    for (const auto d : seen[i].disks) {
      disks.push_back({{"segment", name_of(d)}});
      text += " " + name_of(d);
    }
    all.push_back({{"key", key},
                   {"bytes", seen[i].size},
                   {"xxh3", seen[i].checksum},
                   {"places", places},
                   {"ssd", disks}});
    if (!common.json) io.out << key << "  " << readable(seen[i].size) << " " << text << "\n";
  }
  if (common.json) io.out << print(all);
  return status;
}

int list_objects(std::span<const std::string> args, const sim::console& io) {
  common_arguments common;
  std::uint32_t limit = 1000;
  cli::command_line line{"mooncaf store ls [EXPRESSION] [options]",
                         "Objects in no order, all or those in whose key the expression is found.",
                         {},
                         {}};
  line.arguments = with(
      common, {cli::whole("limit", "at most so many, 1000 by default", limit, 1, store_wire::batch_max)});
  if (const auto status = begin(line, args, io)) return *status;
  if (line.words.size() > 1) return complain(io, {ec::invalid_argument, "ls takes one EXPRESSION"}, 2);
  const auto store = common.connect();
  if (!store) return complain(io, store.error(), 1);
  const auto pattern = line.words.empty() ? std::string{} : line.words[0];
  const auto found = (*store)->list(pattern, limit);
  if (found.code != store_code::ok) return failed(io, "'" + pattern + "'", found.code);
  json all = json::array();
  for (const auto& o : found.objects) {
    all.push_back({{"key", o.key}, {"bytes", o.size}, {"replicas", o.replicas}, {"on_ssd", o.on_disk}});
    if (!common.json)
      io.out << o.key << "  " << readable(o.size) << "  x" << o.replicas
             << (o.on_disk == 0            ? ""
                 : o.on_disk == o.replicas ? ", on SSD"
                                           : ", also on SSD")
             << "\n";
  }
  if (common.json) io.out << print(all);
  return 0;
}

// Keys and an expression exclude each other, lest a mistyped key removes what an expression matches.
int remove_objects(std::span<const std::string> args, const sim::console& io) {
  common_arguments common;
  bool force = false;
  std::string pattern;
  cli::command_line line{
      "mooncaf store rm KEY… | --matching EXPRESSION [options]", "Removes objects.", {}, {}};
  line.arguments =
      with(common, {cli::flag("force", "although they are in use, or pinned", force),
                    cli::text("matching", "EXPRESSION", "all in whose key it is found; . for all", pattern)});
  if (const auto status = begin(line, args, io)) return *status;
  if (line.words.empty() == pattern.empty())
    return complain(io, {ec::invalid_argument, "rm takes KEYs, or --matching"}, 2);
  const auto store = common.connect();
  if (!store) return complain(io, store.error(), 1);
  std::int64_t removed = 0;
  int status = 0;
  if (!pattern.empty()) {
    removed = (*store)->remove_all(pattern, force);
    if (removed < 0)
      return failed(io, "'" + pattern + "'", as_store_code(static_cast<std::int32_t>(removed)));
  } else {
    const auto codes = (*store)->remove(views(line.words), force);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      removed += codes[i] == store_code::ok;
      if (codes[i] != store_code::ok) status = failed(io, line.words[i], codes[i]);
    }
  }
  if (common.json) io.out << print({{"removed", removed}});
  else io.out << removed << " removed\n";
  return status;
}

// The parts that shards have of a segment are shown as the one that was mounted.
int list_segments(std::span<const std::string> args, const sim::console& io) {
  common_arguments common;
  cli::command_line line{
      "mooncaf store segments [options]", "The memory that is mounted, and how full it is.", {}, {}};
  line.arguments = common.list();
  if (const auto status = begin(line, args, io)) return *status;
  const auto store = common.connect();
  if (!store) return complain(io, store.error(), 1);
  const auto segments = (*store)->mounted();
  if (!segments) return complain(io, segments.error(), 1);
  json all = json::array();
  for (const auto& s : *segments) {
    all.push_back(as_json(s));
    const auto location = std::string{location_of(s.view.host)};
    if (!common.json)
      io.out << s.view.name << "  " << to_string(s.view.kind) << "  "
             << readable(s.view.bytes - s.view.free_bytes) << " of " << readable(s.view.bytes) << "  "
             << (location.empty() ? "" : location + ", ")
             << (same_host(s.view.host, this_host()) ? "on this host" : "elsewhere")
             << (s.view.withheld_bytes > 0 ? ", KV blocks have " + readable(s.view.withheld_bytes) : "")
             << (s.view.draining ? ", draining" : "")
             << (s.holder.speaks < store_wire::newest ? ", protocol " + std::to_string(s.holder.speaks) : "")
             << "\n";
  }
  if (common.json) io.out << print(all);
  return 0;
}

}  // namespace mooncaf::store
