// The command that shows what happens in the store, second by second.

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "actors/store/store_command.hpp"
#include "actors/store/store_page.hpp"
#include "runtime/base/utf8.hpp"

namespace mooncaf::store {

namespace {

using nlohmann::json;

struct moment {
  store_picture picture;
  time_point at{};
};

/// Events a second between two looks.
struct rates {
  double gets = 0, evictions = 0, refused = 0, answers = 0;
  std::optional<double> hit_rate;  ///< nothing: no key was asked for
};

std::uint64_t answers_of(const directory_figures& f) {
  std::uint64_t n = 0;
  for (const auto& t : f.times)
    for (const auto c : t.counts) n += c;
  return n;
}

/// @returns nothing where the second look was at a directory that has begun anew.
std::optional<rates> between(const moment& a, const moment& b) {
  const auto &was = a.picture.figures.counts, &is = b.picture.figures.counts;
  const auto before = answers_of(a.picture.figures), after = answers_of(b.picture.figures);
  const bool anew = after < before || is.hits < was.hits || is.misses < was.misses ||
                    is.evictions < was.evictions || is.refused < was.refused;
  const auto seconds = to_seconds(b.at - a.at);
  if (anew || seconds <= 0) return std::nullopt;
  const auto per_s = [&](std::uint64_t more) { return static_cast<double>(more) / seconds; };
  const auto hits = is.hits - was.hits, gets = hits + is.misses - was.misses;
  rates r{per_s(gets), per_s(is.evictions - was.evictions), per_s(is.refused - was.refused),
          per_s(after - before), std::nullopt};
  if (gets > 0) r.hit_rate = static_cast<double>(hits) / static_cast<double>(gets);
  return r;
}

json as_json(const moment& now, const std::optional<rates>& r) {
  auto all = as_json(now.picture);
  all["rates"] = nullptr;
  if (!r) return all;
  all["rates"] = {{"gets_per_s", r->gets},
                  {"evictions_per_s", r->evictions},
                  {"refused_per_s", r->refused},
                  {"answers_per_s", r->answers},
                  {"hit_rate", nullptr}};
  if (r->hit_rate) all["rates"]["hit_rate"] = *r->hit_rate;
  return all;
}

/// Fit for a terminal: what would move its cursor or change its colours is written as \xNN.
std::string printable(std::string_view text) {
  const bool words = utf8::is_well_formed(text);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    const bool control = c < 0x20 || c == 0x7f || (c >= 0x80 && !words) || (c == 0xc2 && next < 0xa0);
    if (!control) {
      out += text[i];
      continue;
    }
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\x%02x", c == 0xc2 && words ? next : c);
    out += hex;
    i += c == 0xc2 && words ? 1 : 0;
  }
  return out;
}

/// At most so many characters.
std::string cut(std::string text, std::size_t width) {
  std::size_t at = 0, seen = 0;
  for (; at < text.size(); ++at)
    if ((static_cast<unsigned char>(text[at]) & 0xc0) != 0x80 && seen++ == width) break;
  text.resize(at);
  return text;
}

std::string right(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string left(const std::string& text, std::size_t width) {
  auto shown = cut(text, width);
  const auto n = static_cast<std::size_t>(std::count_if(
      shown.begin(), shown.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  return shown + std::string(width - n, ' ');
}

std::string number(double value, int digits = 0) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string filled(std::uint64_t part, std::uint64_t whole) {
  constexpr std::size_t width = 20;
  const auto share = whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  const auto n = std::min(width, static_cast<std::size_t>(share * width + 0.5));
  return "[" + std::string(n, '#') + std::string(width - n, ' ') + "] " + right(number(100 * share, 1), 5) +
         " %";
}

struct screen {
  std::size_t columns = 100, rows = 0;  ///< rows: zero for as many as there are
};

screen screen_of(bool terminal) {
  winsize size{};
  if (!terminal || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {};
  return {size.ws_col, size.ws_row};
}

// Lines are made apart from showing them, so that a pipe and a screen get the same.
std::vector<std::string> lines_of(const moment& now, const std::optional<rates>& r,
                                  const std::string& where) {
  const auto& c = now.picture.figures.counts;
  const auto used = c.total_bytes - c.free_bytes;
  std::vector<std::string> all;
  all.push_back("mooncaf store, directory at " + where);
  all.push_back("objects " + std::to_string(c.objects) + " (" + readable(c.object_bytes) + "), replicas " +
                std::to_string(c.replicas) + ", puts under way " + std::to_string(c.reserved));
  all.push_back("memory  " + filled(used, c.total_bytes) + "  " + readable(used) + " of " +
                readable(c.total_bytes) + ", " + readable(c.quarantined_bytes) + " resting");
  if (!r) {
    all.push_back("rates   come with the next look");
  } else {
    all.push_back("gets    " + number(r->gets, 1) + "/s, found " +
                  (r->hit_rate ? number(100 * *r->hit_rate, 1) + " %" : "-") + ", evictions " +
                  number(r->evictions, 1) + "/s, refused puts " + number(r->refused, 1) +
                  "/s, directory's answers " + number(r->answers, 1) + "/s");
  }
  all.push_back("");
  all.push_back(left("SEGMENT", 20) + "  " + left("HOST", 16) + "  " + right("SIZE", 10) + "  IN USE");
  for (const auto& s : now.picture.segments)
    all.push_back(left(printable(s.view.name), 20) + "  " + left(printable(s.view.host), 16) + "  " +
                  right(readable(s.view.bytes), 10) + "  " +
                  filled(s.view.bytes - s.view.free_bytes, s.view.bytes) +
                  (s.view.withheld_bytes > 0 ? " KV blocks have " + readable(s.view.withheld_bytes) : "") +
                  (s.view.draining ? " draining" : ""));
  all.push_back("");
  all.push_back(right("READS/S", 9) + "  " + right("SIZE", 10) + "  " + right("REPLICAS", 8) + "  READ MOST");
  for (const auto& h : now.picture.hottest)
    all.push_back(right(number(h.object.reads_per_s, 1), 9) + "  " + right(readable(h.object.size), 10) +
                  "  " + right(std::to_string(h.object.replicas), 8) + "  " +
                  (h.tenant.empty() ? "" : printable(h.tenant) + ": ") + printable(h.object.key));
  return all;
}

/// @param live  the screen shows a person the last picture alone.
void show(std::ostream& out, const std::vector<std::string>& lines, bool live) {
  const auto size = screen_of(live);
  const auto n = size.rows == 0 ? lines.size() : std::min(lines.size(), size.rows - 1);
  if (live) out << "\x1b[H\x1b[2J";
  for (std::size_t i = 0; i < n; ++i) out << (live ? cut(lines[i], size.columns) : lines[i]) << "\n";
  if (!live) out << "\n";
  out.flush();
}

}  // namespace

// A directory that is away for a while is part of what one watches, so it does not end the command.
int watch_store(std::span<const std::string> args, const sim::console& io) {
  common_arguments common;
  bool once = false;
  double interval = 1;
  cli::command_line line{"mooncaf store top [options]",
                         "What happens in the store: segments, rates, the objects that are read most.",
                         {},
                         {}};
  line.arguments = common.list();
  line.arguments.push_back(cli::flag("once", "one picture, of two looks one interval apart", once));
  line.arguments.push_back(
      cli::seconds("interval", "from one picture to the next, 1s by default", interval, 0.1, 3600));
  if (const auto status = begin(line, args, io)) return *status;
  const auto store = common.connect();
  if (!store) return complain(io, store.error(), 1);
  const bool live = !common.json && !once && ::isatty(STDOUT_FILENO) != 0;
  std::optional<moment> before;
  for (bool first = true;; first = false) {
    if (!first) std::this_thread::sleep_for(from_seconds(interval));
    auto seen = look_at(**store);
    if (!seen && once) return complain(io, seen.error(), 1);
    if (!seen) {
      if (common.json) io.out << json{{"error", to_string(seen.error())}}.dump() << std::endl;
      else show(io.out, {"mooncaf store: " + to_string(seen.error()) + "; trying again"}, live);
      before.reset();
    } else {
      const moment now{std::move(*seen), clock_type::now()};
      const auto r = before ? between(*before, now) : std::nullopt;
      const bool last = once && before;
      if (!once || last) {
        if (common.json)
          io.out << as_json(now, r).dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
        else show(io.out, lines_of(now, r, common.directory), live);
      }
      if (last) return 0;
      before = now;
    }
    if (!io.out) return 1;
  }
}

}  // namespace mooncaf::store
