#include "actors/store/store_command.hpp"

#include <cstdio>
#include <map>

#include "config/value.hpp"
#include "storage/objects/wire/tenant_token.hpp"
#include "transport/net/secret_file.hpp"

namespace mooncaf::store {

std::vector<cli::argument> common_arguments::list() {
  return {
      cli::text(
          "directory", "HOST:PORT",
          "where the directory listens, 127.0.0.1:7460 by default; of several conductors all, with commas",
          directory),
      cli::text("cluster-secret-file", "FILE", "the cluster's secret; the user's own by default",
                secret_file),
      cli::text("token-file", "FILE", "a tenant's token: its objects alone, in place of the cluster's secret",
                token_file),
      cli::flag("json", "JSON on standard output", json)};
}

result<directory_address> common_arguments::address() const {
  std::vector<host_port> seats;
  for (const auto& one : config::split_list(directory)) {
    const auto at = config::parse_endpoint(one);
    if (!at || at->port == 0)
      return fail(ec::invalid_argument, "--directory: '" + one + "' is not HOST:PORT");
    seats.push_back(*at);
  }
  directory_address to;
  to.at = std::make_shared<const directory_seats>(std::move(seats));
  to.own_host = this_host();
  if (!token_file.empty()) {
    const auto key = tenant_key_from_file(token_file);
    if (!key) return fail(key.error());
    to.secret = *key;
    return to;
  }
  auto file = mooncaf::secret_file::open(secret_file);
  if (!file) return fail(file.error());
  to.secret = {std::move(*file), std::string{store_key_purpose}};
  return to;
}

result<std::unique_ptr<store_client>> common_arguments::connect(bool everyone) const {
  auto to = address();
  if (!to) return fail(to.error());
  to->everyone = everyone;
  return store_client::connect({*to});
}

int complain(const sim::console& io, const error& why, int status) {
  io.err << "mooncaf store: " << (why.detail.empty() ? to_string(why) : why.detail) << "\n";
  return status;
}

std::optional<int> begin(cli::command_line& line, std::span<const std::string> args, const sim::console& io) {
  const auto read = cli::parse(line, args);
  if (!read) return complain(io, read.error(), 2);
  if (*read == cli::parsed::run) return std::nullopt;
  cli::print_help(line, io.out);
  return 0;
}

std::string readable(std::uint64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

// One table of commands serves the dispatch and the help, so neither can name a command that the other
// lacks.
int run_command(std::span<const std::string> args, const sim::console& io) {
  struct entry {
    int (*run)(std::span<const std::string>, const sim::console&);
    const char* meaning;
  };
  static const std::map<std::string, entry> commands{
      {"directory", {serve_directory, "knows where every object is; one process of the store"}},
      {"mount", {mount_segment, "mounts memory of this machine in the store, until it is stopped"}},
      {"http", {serve_http, "the store over HTTP, and its metrics"}},
      {"put", {put_object, "stores a file under a key"}},
      {"get", {get_object, "writes an object to a file"}},
      {"stat", {stat_objects, "size, checksum and places of objects"}},
      {"ls", {list_objects, "objects whose keys match an expression"}},
      {"rm", {remove_objects, "removes objects"}},
      {"drain", {drain_segment, "moves all objects of a segment elsewhere, and puts none there any more"}},
      {"replicas", {place_replicas, "how often objects are there, and in which segments"}},
      {"segments", {list_segments, "the memory that is mounted, and how full it is"}},
      {"tenants", {list_tenants, "who has a part of the store, how much of it, and what may be had"}},
      {"top", {watch_store, "what happens in the store, second by second"}},
      {"bench", {measure, "rates and times of this store, from this process"}}};
  // Scripts that were written for an earlier version call these two by their former names.
  static const std::map<std::string, std::string> former_names{{"lend", "mount"}, {"door", "http"}};
  const auto name_of = [](const std::string& word) {
    const auto former = former_names.find(word);
    return former == former_names.end() ? word : former->second;
  };
  const auto found = args.empty() ? commands.end() : commands.find(name_of(args.front()));
  if (found != commands.end()) return found->second.run(args.subspan(1), io);
  const auto form = args.empty() ? std::nullopt : cli::help_asked(args.front());
  if (form && *form != cli::help_form::text) {
    cli::command_line line{
        "mooncaf store COMMAND [options]", "Commands of the object store.\n", {}, {}, {}, *form};
    for (const auto& [name, e] : commands) {
      line.commands.push_back(name);
      line.summary += "  " + name + std::string(12 - name.size(), ' ') + e.meaning + "\n";
    }
    cli::print_help(line, io.out);
    return 0;
  }
  const bool help = form.has_value();
  auto& to = help ? io.out : io.err;
  if (!help && !args.empty()) to << "mooncaf store: unknown command '" << args.front() << "'\n";
  to << "Usage: mooncaf store COMMAND [options]; COMMAND --help explains each.\n";
  for (const auto& [name, e] : commands)
    to << "  " << name << std::string(12 - name.size(), ' ') << e.meaning << "\n";
  return help ? 0 : 2;
}

}  // namespace mooncaf::store
