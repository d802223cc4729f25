// mooncaf: one binary, any set of roles.

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "actors/cluster/shutdown.hpp"
#include "actors/launch/cluster_command.hpp"
#include "actors/process/rdma_setup.hpp"
#include "actors/process/serve.hpp"
#include "actors/store/store_command.hpp"
#include "runtime/api/endpoints.hpp"
#include "runtime/api/request_fields.hpp"
#include "runtime/sim/cli/commands.hpp"

int main(int argc, char** argv) {
  if (argc > 1 && mooncaf::sim::is_command(argv[1])) {  // needs no cluster
    const std::vector<std::string> args(argv + 1, argv + argc);
    return mooncaf::sim::run_command(args, {std::cout, std::cerr, isatty(STDERR_FILENO) != 0});
  }
  if (argc > 1 && mooncaf::launch::is_command(argv[1])) {
    const std::vector<std::string> args(argv + 1, argv + argc);
    return mooncaf::launch::run_command(args, {std::cout, std::cerr, isatty(STDERR_FILENO) != 0});
  }
  if (argc > 1 && std::string_view{argv[1]} == "store") {
    const std::vector<std::string> args(argv + 2, argv + argc);
    return mooncaf::store::run_command(args, {std::cout, std::cerr, isatty(STDERR_FILENO) != 0});
  }
  if (argc == 2 && std::string_view{argv[1]} == "api") {
    std::cout << "Endpoints\n\n"
              << mooncaf::endpoints_as_markdown() << "\nFields of a body\n\n"
              << mooncaf::fields_as_markdown();
    return 0;
  }
  // The server's own words follow; `parse_options` knows nothing of the other commands.
  if (argc == 2 && mooncaf::cli::help_asked(argv[1]) == mooncaf::cli::help_form::words) {
    for (const auto names : {mooncaf::sim::command_names(), mooncaf::launch::command_names()})
      for (const auto name : names) std::cout << name << "\n";
    std::cout << "api\nstore\ntopology\n" << std::flush;
  }
  mooncaf::claim_stop_signals();
  if (argc > 1 && std::string_view{argv[1]} == "topology") return mooncaf::print_topology(argc, argv);
  const auto parsed = mooncaf::parse_options(argc, argv);
  if (!parsed) {
    std::fprintf(stderr, "mooncaf: %s\n", parsed.error().detail.c_str());
    return 2;
  }
  switch (parsed->action) {
    case mooncaf::option_action::print_text:
      std::fputs(parsed->text.c_str(), stdout);
      return 0;
    case mooncaf::option_action::show_version:
      std::puts("mooncaf " MOONCAF_VERSION);
      return 0;
    case mooncaf::option_action::run:
      break;
  }
  if (const auto fit = mooncaf::check_serving(parsed->values); !fit) {
    std::fprintf(stderr, "mooncaf: %s\n", fit.error().detail.c_str());
    return 2;
  }
  return mooncaf::serve(parsed->values);
}
