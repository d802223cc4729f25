// The help of one declaration in its other forms.
#include "config/manual.hpp"

#include <doctest/doctest.h>

#include <sstream>

#include "config/options.hpp"

using namespace mooncaf;

namespace {

struct command {
  bool fast = false;
  std::string how = "one";
  cli::command_line line{
      "mooncaf trace fit FILE",
      "Fits a back\\slash. And more.\n.dots are no commands\n  an example\nthe end",
      {cli::flag("fast", "quickly", fast), cli::text("out", "FILE", "-where it goes", how)},
      {}};

  std::string said(const std::string& asked) {
    const std::vector<std::string> args{"x.jsonl", asked};
    REQUIRE(cli::parse(line, args).value() == cli::parsed::help);
    std::ostringstream out;
    cli::print_help(line, out);
    return out.str();
  }
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE(
    "a manual page has the command's name, text and options, and nothing in them is a command of roff") {
  const auto page = command{}.said("--help=man");
  CHECK(page.starts_with(".TH MOONCAF\\-TRACE\\-FIT 1 "));
  CHECK(has(page, "mooncaf\\-trace\\-fit \\- fits a back\\eslash\n"));
  CHECK(has(page, "\\&.dots are no commands\n"));
  CHECK(has(page, ".nf\n  an example\n.fi\n"));
  CHECK(has(page, "\\fB\\-\\-out\\fR \\fIFILE\\fR\n\\-where it goes\n"));
}

TEST_CASE("words for a shell are the options, with what each takes") {
  CHECK(command{}.said("--help=words") == "--fast\t\n--out\tFILE\n--help\t\n");
  CHECK(command{}.said("-h").starts_with("usage: mooncaf trace fit FILE\n"));
  std::ostringstream group;
  cli::print_help({"mooncaf store COMMAND", "", {}, {}, {"get", "put"}, cli::help_form::words}, group);
  CHECK(group.str() == "get\nput\n--help\t\n");
}

TEST_CASE("the server's words and page have every option, and the values of choices") {
  const auto words = parse_options(std::vector<std::string>{"--help=words"})->text;
  CHECK(has(words, "\n--mode\tdisaggregated|coupled|engines\n"));
  CHECK(has(words, "\n--page\t\n--no-page\t\n"));
  const auto page = parse_options(std::vector<std::string>{"--help=man"})->text;
  CHECK(page == manual_text());
  CHECK(has(page, ".SS The model (section [model] of the file)\n"));
  CHECK(has(page, "\\fB\\-\\-drain\\-timeout\\fR \\fITIME\\fR\n"));
}
