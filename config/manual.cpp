#include "config/manual.hpp"

#include <algorithm>
#include <sstream>

#include "config/declaration.hpp"

namespace mooncaf::cli {

namespace {

/// Text as roff prints it: no character of it is a command.
std::string escaped(std::string_view text) {
  std::string out;
  if (text.starts_with('.') || text.starts_with('\'')) out += "\\&";
  for (const char c : text) {
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else out += c;
  }
  return out;
}

/// "mooncaf-trace-fit" of "mooncaf trace fit FILE".
std::string page_name(std::string_view usage) {
  std::string name;
  while (!usage.empty()) {
    const auto end = std::min(usage.find_first_of(" \n"), usage.size());
    const auto word = usage.substr(0, end);
    if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") != std::string_view::npos || word.empty() ||
        word.starts_with('-'))
      break;
    name += (name.empty() ? "" : "-") + std::string{word};
    usage.remove_prefix(std::min(end + 1, usage.size()));
  }
  return name;
}

std::string in_capitals(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

void begin_page(std::ostream& out, const std::string& name, std::string_view what, std::string_view usage) {
  out << ".TH " << escaped(in_capitals(name)) << " 1 \"\" mooncaf mooncaf\n.SH NAME\n"
      << escaped(name) << " \\- " << escaped(what) << "\n.SH SYNOPSIS\n.nf\n";
  std::istringstream lines{std::string{usage}};
  for (std::string one; std::getline(lines, one);)
    out << escaped(one.substr(std::min(one.find_first_not_of(' '), one.size()))) << "\n";
  out << ".fi\n";
}

/// Paragraphs are filled anew; lines that are indented are examples, and stay as they are.
void put_text(std::ostream& out, std::string_view text) {
  bool example = false;
  std::istringstream lines{std::string{text}};
  for (std::string one; std::getline(lines, one);) {
    const bool indented = one.starts_with(' ');
    if (indented != example) out << (indented ? ".PP\n.nf\n" : ".fi\n.PP\n");
    else if (one.empty()) out << ".PP\n";
    if (!one.empty()) out << escaped(one) << "\n";
    example = indented;
  }
  if (example) out << ".fi\n";
}

void put_option(std::ostream& out, const std::string& name, const std::string& placeholder,
                const std::string& meaning) {
  out << ".TP\n\\fB" << escaped("--" + name) << "\\fR";
  if (!placeholder.empty()) out << " \\fI" << escaped(placeholder) << "\\fR";
  out << "\n" << escaped(meaning) << "\n";
}

/// "a|b" of "one of a, b"; else the placeholder.
std::string values_of(const std::string& placeholder, std::string_view allowed) {
  constexpr std::string_view choice = "one of ";
  if (!allowed.starts_with(choice)) return placeholder;
  std::string out;
  for (const char c : allowed.substr(choice.size())) {
    if (c == ',') out += '|';
    else if (c != ' ') out += c;
  }
  return out;
}

std::string first_sentence(std::string_view text) {
  auto end = std::min(text.find(". "), text.size());
  end = std::min(end, text.find(".\n"));
  end = std::min(end, text.find_last_not_of(".\n ") + 1);
  std::string out{text.substr(0, end)};
  std::replace(out.begin(), out.end(), '\n', ' ');
  if (!out.empty() && out[0] >= 'A' && out[0] <= 'Z') out[0] = static_cast<char>(out[0] - 'A' + 'a');
  return out;
}

}  // namespace

std::optional<help_form> help_asked(std::string_view arg) {
  if (arg == "--help" || arg == "-h") return help_form::text;
  if (arg == "--help=man") return help_form::man;
  if (arg == "--help=words") return help_form::words;
  return std::nullopt;
}

void print_manual(const command_line& line, std::ostream& out) {
  begin_page(out, page_name(line.usage), first_sentence(line.summary), line.usage);
  out << ".SH DESCRIPTION\n";
  put_text(out, line.summary);
  if (!line.arguments.empty()) out << ".SH OPTIONS\n";
  for (const auto& a : line.arguments) put_option(out, a.name, a.placeholder, a.meaning);
  out << ".SH SEE ALSO\n.BR mooncaf (1)\n";
}

void print_words(const command_line& line, std::ostream& out) {
  for (const auto& command : line.commands) out << command << "\n";
  for (const auto& a : line.arguments) {
    out << "--" << a.name << "\t" << values_of(a.placeholder, a.allowed) << "\n";
    if (a.negatable) out << "--no-" << a.name << "\t\n";
  }
  out << "--help\t\n";
}

std::string server_manual(std::string_view introduction) {
  std::ostringstream out;
  const auto usage = introduction.find("usage: "), end = introduction.find('\n', usage);
  const auto what = introduction.substr(introduction.find(": ") + 2);
  begin_page(out, "mooncaf", what.substr(0, what.find('\n')),
             introduction.substr(usage + 7, end - usage - 7));
  out << ".SH DESCRIPTION\n";
  put_text(out, introduction.substr(end + 2));
  out << ".SH OPTIONS\n";
  const auto defaults = default_options();
  for (const auto& section : config::sections()) {
    out << ".SS " << escaped(section.title + " (section [" + section.name + "] of the file)") << "\n";
    for (const auto& d : config::declarations()) {
      if (d.section != section.name) continue;
      const auto value = d.show(defaults);
      put_option(out, d.name, d.placeholder,
                 d.meaning + ". Default: " + (value.empty() ? std::string{"empty"} : value) +
                     (d.allowed.empty() || d.placeholder.empty() ? "" : "; allowed: " + d.allowed) + ".");
    }
  }
  return out.str();
}

}  // namespace mooncaf::cli
