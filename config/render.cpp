// The declarations as text: help, the effective configuration, the example file.

#include <algorithm>

#include "config/declaration.hpp"
#include "config/manual.hpp"

namespace mooncaf {

namespace {

using config::declaration;

constexpr std::size_t line_width = 100;

/// Appends `text` in lines that start with `indent` and are at most `line_width` long.
void wrap(std::string& out, std::string_view text, const std::string& indent) {
  std::size_t column = line_width;  // so that the first word opens a line
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (column + 1 + word.size() > line_width) {
      if (!out.empty() && out.back() != '\n') out += '\n';
      out += indent;
      column = indent.size();
    } else {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    begin = end + 1;
  }
  out += '\n';
}

std::string literal(const declaration& d, const options& o) {
  const std::string value = d.show(o);
  return d.type == config::toml_type::string ? config::toml_quoted(value) : value;
}

std::string with_default(const declaration& d, const options& defaults) {
  const std::string value = d.show(defaults);
  std::string note = "[default: " + (value.empty() ? std::string{"empty"} : value);
  if (!d.allowed.empty() && !d.placeholder.empty()) note += "; " + d.allowed;
  return note + "]";
}

constexpr std::string_view introduction =
    "mooncaf: a KVCache-centric, disaggregated LLM server\n"
    "\n"
    "usage: mooncaf [--config FILE] [options]\n"
    "\n"
    "Examples\n"
    "  mooncaf --model SmolLM2-135M-Instruct.Q4_1.gguf\n"
    "      every role in one process; the OpenAI API at http://127.0.0.1:8000/v1\n"
    "  mooncaf --model model.gguf --ssd-path /var/cache/mooncaf --ssd-size 64GiB\n"
    "      with an SSD tier that survives a restart\n"
    "  mooncaf --role prefill,cache --join 10.0.0.1:7400 --listen 10.0.0.2:0 --data-listen 10.0.0.2:0 \\\n"
    "          --cluster-secret-file secret --model model.gguf\n"
    "      one more host for a running cluster\n"
    "  mooncaf --config mooncaf.toml --print-config\n"
    "      the configuration in effect, as TOML\n"
    "\n"
    "Other commands; --help of each explains it\n"
    "  mooncaf up | status | logs    a cluster of several hosts from one file; also\n"
    "          drain | restart | scale | stop\n"
    "  mooncaf store COMMAND         the object store\n"
    "  mooncaf simulate | plan       the scheduler on a virtual clock: how a cluster would carry a trace\n"
    "  mooncaf trace | calibrate     traces made up or counted; a profile of this machine for the two above\n"
    "  mooncaf replay | advise       a conductor's decisions again, and why they were made; what would have\n"
    "                                kept more requests inside their SLOs\n"
    "  mooncaf api                   every path of the HTTP API and every field of a body, as Markdown "
    "tables\n"
    "  mooncaf topology [options]    the NICs of this host, and which of them RDMA would use\n"
    "\n"
    "General\n"
    "  --config FILE\n"
    "      Read options from this TOML file first; the command line wins.\n"
    "  --print-config\n"
    "      Print the options in effect as such a file, and exit.\n"
    "  --help, -h\n"
    "  --version, -V\n";

}  // namespace

std::string manual_text() { return cli::server_manual(introduction); }

std::string help_text() {
  const options defaults = default_options();
  std::string out{introduction};
  for (const auto& section : config::sections()) {
    out += "\n" + section.title + "  (section [" + section.name + "] of the file)\n";
    for (const auto& d : config::declarations()) {
      if (d.section != section.name) continue;
      out += "  --" + d.name + (d.placeholder.empty() ? ", --no-" + d.name : " " + d.placeholder) + "\n";
      wrap(out, d.meaning + " " + with_default(d, defaults), "      ");
    }
  }
  out += "\nSizes need a unit (B, KiB, MiB, GiB, TiB or KB, MB, GB, TB), times too (ns, us, ms, s, m, h).\n";
  return out;
}

std::string to_toml(const options& values) {
  std::string out;
  for (const auto& section : config::sections()) {
    out += (out.empty() ? "[" : "\n[") + section.name + "]\n";
    for (const auto& d : config::declarations())
      if (d.section == section.name) out += d.key + " = " + literal(d, values) + "\n";
  }
  return out;
}

std::string example_toml() {
  const options defaults = default_options();
  std::string out =
      "# Every option of mooncaf with its default. Made from the declarations in config/declarations.cpp; a "
      "test keeps\n"
      "# it so. Read with: mooncaf --config FILE. The option of the same meaning on the command line is in "
      "brackets.\n";
  for (const auto& section : config::sections()) {
    out += "\n# " + section.title + "\n[" + section.name + "]\n";
    for (const auto& d : config::declarations()) {
      if (d.section != section.name) continue;
      out += "\n";
      wrap(out, d.meaning + ". (--" + d.name + "; read by: " + d.roles + ")", "# ");
      if (!d.allowed.empty()) wrap(out, "Allowed: " + d.allowed + ".", "# ");
      out += d.key + " = " + literal(d, defaults) + "\n";
    }
  }
  return out;
}

}  // namespace mooncaf
