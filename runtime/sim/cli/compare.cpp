#include <fstream>
#include <sstream>

#include "config/command_line.hpp"
#include "runtime/sim/cli/commands.hpp"
#include "runtime/sim/cli/invocation.hpp"
#include "runtime/sim/compare_report.hpp"

namespace mooncaf::sim {

namespace {

/// A file's name without folder and ending.
std::string short_name(const std::string& path) {
  const auto name = path.substr(path.rfind('/') + 1);
  return name.ends_with(".json") ? name.substr(0, name.size() - 5) : name;
}

result<compared_run> load_run(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return fail(ec::io_error, "cannot read " + path);
  return read_run(text.str(), short_name(path));
}

}  // namespace

/// Reads reports of `--json` and runs nothing: runs of different days and machines can be compared.
int compare_command(std::span<const std::string> args, const console& io) {
  constexpr std::size_t most = 8;
  std::string report;
  command_line line{
      "mooncaf simulate --compare A.json B.json [...]",
      "Puts 2 to 8 runs side by side: options in which they differ, what came of it. A run is what\n"
      "mooncaf simulate --json prints.",
      {text("report", "FILE.html", "write a page with the table and plots", report)},
      {}};
  const invocation here{io, "simulate --compare"};
  const auto read = parse(line, args);
  if (!read) return here.wrong(read.error(), 2);
  if (*read == parsed::help) {
    print_help(line, io.out);
    return 0;
  }
  if (line.words.size() < 2 || line.words.size() > most)
    return here.wrong({ec::invalid_argument, "2 to 8 files of mooncaf simulate --json expected"}, 2);
  std::vector<compared_run> runs;
  for (const auto& path : line.words) {
    auto run = load_run(path);
    if (!run) return here.wrong(run.error(), 1);
    runs.push_back(std::move(*run));
  }
  io.out << to_text(runs);
  if (report.empty()) return 0;
  std::ofstream page{report, std::ios::binary};
  page << to_html(runs);
  page.close();
  if (!page) return here.wrong({ec::io_error, "cannot write " + report}, 1);
  io.out << "\nplots: " << report << "\n";
  return 0;
}

}  // namespace mooncaf::sim
