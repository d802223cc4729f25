#include "runtime/loading/kept_timings.hpp"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "runtime/base/hash.hpp"
#include "runtime/base/replace_file.hpp"

namespace mooncaf {

namespace fs = std::filesystem;

namespace {

constexpr auto first_line = "mooncaf passes 1";
constexpr std::size_t most_passes = 1000;
constexpr auto forgotten_after = std::chrono::hours{24 * 30};

std::int64_t seconds_of(kept_timings::wall_clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::seconds>(t.time_since_epoch()).count();
}

/// Only what this project keeps there: a folder of caches may be shared.
void forget_old(const std::string& folder) {
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder, ignored)) {
    const auto written = fs::last_write_time(file, ignored);
    if (!ignored && file.path().extension() == ".passes" &&
        fs::file_time_type::clock::now() - written > forgotten_after)
      fs::remove(file, ignored);
  }
}

}  // namespace

std::string kept_timings::default_folder() {
  for (const auto& [variable, below] : {std::pair{"CACHE_DIRECTORY", "/timings"},
                                        {"XDG_CACHE_HOME", "/mooncaf/timings"},
                                        {"HOME", "/.cache/mooncaf/timings"}}) {
    if (const char* at = std::getenv(variable); at != nullptr && *at == '/') return std::string{at} + below;
  }
  return {};
}

kept_timings::kept_timings(std::string folder, std::string of)
    : folder_(std::move(folder)),
      of_(std::move(of)),
      path_(folder_.empty() ? "" : folder_ + "/" + to_string(hash_text128(of_)) + ".passes") {}

std::vector<timing_sample> kept_timings::find(wall_clock::time_point now,
                                              std::chrono::nanoseconds age) const {
  if (path_.empty() || age.count() == 0) return {};
  std::ifstream in(path_);
  std::string first, of, measured;
  if (!std::getline(in, first) || first != first_line || !std::getline(in, of) || of != of_) return {};
  std::int64_t at = 0;
  std::size_t count = 0;
  if (!(in >> at >> count) || count == 0 || count > most_passes) return {};
  // A clock that was set back makes a file of the future, whose age is unknown.
  if (at > seconds_of(now) || at < seconds_of(now - age)) return {};
  std::vector<timing_sample> passes(count);
  for (auto& [work, context, took] : passes) {
    if (!(in >> work >> context >> took) || work <= 0 || context < 0 || took <= 0) return {};
  }
  std::string end;
  return in >> end && end == "end" ? passes : std::vector<timing_sample>{};
}

result<void> kept_timings::keep(const std::vector<timing_sample>& measured,
                                wall_clock::time_point now) const {
  if (path_.empty()) return {};
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) return fail(ec::io_error, folder_ + ": " + failed.message());
  forget_old(folder_);
  std::ostringstream text;
  text << first_line << '\n' << of_ << '\n' << seconds_of(now) << ' ' << measured.size() << '\n';
  for (const auto& [work, context, took] : measured) text << work << ' ' << context << ' ' << took << '\n';
  text << "end\n";
  return replace_file(path_, text.str(), 0600);
}

}  // namespace mooncaf
