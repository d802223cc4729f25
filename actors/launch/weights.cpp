#include "actors/launch/weights.hpp"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "actors/launch/cluster_command.hpp"
#include "config/command_line.hpp"
#include "config/value.hpp"
#include "storage/file_slice.hpp"
#include "storage/files/file_offer.hpp"

namespace mooncaf::launch {

namespace {

using namespace std::chrono_literals;

std::string text_of(const char* form, double value) {
  char text[64];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

struct weights_arguments {
  std::string listen = "127.0.0.1:0", secret_file, from, host = "127.0.0.1", idle = "1h", reader;
};

int offer(const weights_arguments& given, const std::string& path, const key_ring& secret,
          const sim::console& io) {
  const auto at = config::parse_endpoint(given.listen);
  const auto idle = config::parse_duration(given.idle);
  if (!at)
    return complain(io, {ec::invalid_argument, "--listen: '" + given.listen + "' is not HOST:PORT"}, 2);
  if (!config::is_loopback(at->host) && given.secret_file.empty())
    return complain(io,
                    {ec::invalid_argument,
                     "--cluster-secret-file is needed once " + at->host + " is no loopback address"},
                    2);
  if (!idle || *idle < 1s)
    return complain(io, {ec::invalid_argument, "--idle: '" + given.idle + "' is no time from 1s up"}, 2);
  const auto done = offer_weights(path, secret, at->host, at->port, *idle, 0, [&](std::uint16_t port) {
    io.out << "offers " << path << " at " << at->host << ":" << port << "\n" << std::flush;
  });
  return done ? 0 : complain(io, done.error(), 1);
}

// All options are read before anything is fetched.
int fetch(const weights_arguments& given, const std::string& path, const key_ring& secret,
          const sim::console& io) {
  file_fetch_options options{secret, {}, path, given.host};
  for (std::size_t at = 0; at <= given.from.size();) {
    const auto end = std::min(given.from.find(',', at), given.from.size());
    if (end > at) options.sources.push_back(given.from.substr(at, end - at));
    at = end + 1;
  }
  if (options.sources.empty())
    return complain(io, {ec::invalid_argument, "--from HOST:PORT,... is needed"}, 2);
  if (!given.reader.empty()) {
    std::istringstream in{given.reader};
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back("--" + word);
    const auto read = parse_options(words, {}, {});
    if (!read) return complain(io, {read.error().code, "--for: " + read.error().detail}, 2);
    options.wanted = wanted_by({use_of(read->values)}, path);
  }
  weights_progress progress{[&](const std::string& text) {
    if (io.interactive) io.err << "\r\x1b[K" << text << std::flush;
    else io.err << text << "\n";
  }};
  const auto done = fetch_files(options, std::ref(progress));
  if (io.interactive) io.err << "\n";
  if (!done) return complain(io, done.error(), 1);
  for (const auto& why : done->dropped) io.err << "mooncaf: not used: " << why << "\n";
  if (options.wanted)
    io.out << file_slice::data_of(path) << " is here, "
           << text_of("%.3g GB", static_cast<double>(done->bytes.total) / 1e9);
  else io.out << path << " is here";
  if (done->from_fetches > 0)
    io.out << text_of(", %.0f %% of it from others that fetch it",
                      100.0 * static_cast<double>(done->from_fetches) * file_manifest::part_bytes /
                          static_cast<double>(done->bytes.total));
  io.out << "\n";
  return 0;
}

}  // namespace

std::function<wish_fn(const file_manifest&)> wanted_by(std::vector<model_use> uses, std::string name) {
  if (uses.empty() || std::ranges::any_of(uses, [](const auto& u) { return u.weights && u.whole; }))
    return {};
  return [uses = std::move(uses), name = std::move(name)](const file_manifest& manifest) -> wish_fn {
    std::vector<std::string> names;
    for (const auto& file : manifest.files()) names.push_back(file.name);
    return [uses, name, names](const auto& drafts, const auto& has) -> result<file_wish> {
      std::vector<model_file> files;
      for (std::size_t i = 0; i < names.size(); ++i) files.push_back({names[i], drafts[i]});
      auto wish = wish_of(files, name, uses, has);
      if (!wish) return fail(wish.error());
      return file_wish{std::move(wish->ranges), std::move(wish->samples)};
    };
  };
}

void weights_progress::operator()(const fetch_progress& now) {
  const auto time = clock_type::now();
  const bool whole = now.found + now.fetched == now.total;
  if (!whole && time - said_ < 250ms) return;
  said_ = time;
  const auto seconds = std::max(1e-3, to_seconds(time - begin_));
  say_(text_of("%.0f %% of ",
               100.0 * static_cast<double>(now.found + now.fetched) / static_cast<double>(now.total)) +
       text_of("%.3g GB, ", static_cast<double>(now.total) / 1e9) +
       text_of("%.0f MB/s", static_cast<double>(now.fetched) / 1e6 / seconds));
}

// Looks ten times a second whether a fetch goes on; the first has as long as a later one.
result<void> offer_weights(const std::string& path, const key_ring& secret, const std::string& host,
                           std::uint16_t port, duration idle, std::size_t fetches,
                           const std::function<void(std::uint16_t port)>& ready) {
  transfer_engine_options engine;
  engine.secret = secret;
  engine.host = host;
  engine.port = port;
  const auto made = file_offer::start(path, std::move(engine));
  if (!made) return fail(made.error());
  ready((*made)->port());
  std::size_t ended = 0;
  for (auto asked = clock_type::now(); clock_type::now() - asked < idle; ::poll(nullptr, 0, 100)) {
    const auto news = (*made)->heard(clock_type::now());
    ended += news.ended;
    if (fetches > 0 && ended >= fetches) break;
    if (news.any) asked = clock_type::now();
  }
  return {};
}

// Both verbs read the same options; each says which are its own.
int weights_command(std::span<const std::string> args, const sim::console& io) {
  weights_arguments given;
  cli::command_line line;
  line.usage = "mooncaf weights offer|fetch PATH [options]";
  line.summary =
      "Brings a model's file or folder to a host that has none, from one or several that have it. Every part "
      "is\nchecked by "
      "its hash; a fetch that was cut off goes on where it was. `mooncaf up` does this by itself.\n"
      "  mooncaf weights offer /models/M.gguf --listen 10.0.0.1:7470 --cluster-secret-file S\n"
      "  mooncaf weights fetch /models/M.gguf --from 10.0.0.1:7470,10.0.0.2:7470 --host 10.0.0.3 "
      "--cluster-secret-file S\n"
      "  mooncaf weights fetch /models/M.gguf --from 10.0.0.1:7470 --for 'role=rank pipeline=4 stage=2'";
  line.arguments = {
      cli::text("listen", "HOST:PORT", "offer: where fetches connect", given.listen),
      cli::text("idle", "TIME", "offer: ends when nothing was fetched for so long, 1h by default",
                given.idle),
      cli::text("from", "HOST:PORT,...", "fetch: the offers; the first that answers says what the content is",
                given.from),
      cli::text("for", "OPTIONS",
                "fetch: only what a process with these options reads, as PATH.slice: a gateway no weights, a "
                "rank its own",
                given.reader),
      cli::text("host", "ADDRESS", "fetch: this host's address", given.host),
      cli::text("cluster-secret-file", "FILE", "the cluster's secret; the user's own by default",
                given.secret_file)};
  const auto read = cli::parse(line, args);
  if (!read) return complain(io, read.error(), 2);
  if (*read == cli::parsed::help) return cli::print_help(line, io.out), 0;
  const bool offers = line.words.size() == 2 && line.words[0] == "offer";
  if (!offers && (line.words.size() != 2 || line.words[0] != "fetch"))
    return complain(io, {ec::invalid_argument, "usage: " + line.usage + "; --help explains"}, 2);
  auto file = secret_file::open(given.secret_file);
  if (!file) return complain(io, file.error(), 1);
  const key_ring secret{std::move(*file), std::string{weights_key_purpose}};
  return offers ? offer(given, line.words[1], secret, io) : fetch(given, line.words[1], secret, io);
}

}  // namespace mooncaf::launch
