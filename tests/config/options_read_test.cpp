#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in{file};
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The sources of every folder but `config`, which fills the fields and would seem to read them.
std::string sources() {
  std::string all;
  for (const auto* folder : {"actors", "runtime", "storage", "transport", "gpu"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator{
             std::filesystem::path{MOONCAF_CONFIG_DIR}.parent_path() / folder}) {
      const auto type = entry.path().extension();
      if (type == ".cpp" || type == ".hpp") all += text_of(entry.path());
    }
  }
  return all;
}

/// "prefill_options::instances" and so on: the fields of the structs in options.hpp that hold values.
std::vector<std::pair<std::string, std::string>> option_fields() {
  std::vector<std::pair<std::string, std::string>> found;
  const std::regex head{R"(struct (\w+_(options|config)) \{)"};
  const std::regex field{R"(^ +[\w:<>]+ (\w+)(\{\}| = [^;]*)?;.*)"};
  std::istringstream lines{text_of(std::string{MOONCAF_CONFIG_DIR} + "/options.hpp")};
  std::string line, owner;
  for (std::smatch m; std::getline(lines, line);) {
    if (std::regex_search(line, m, head)) owner = m[1];
    if (line.starts_with("}")) owner.clear();
    if (!owner.empty() && std::regex_match(line, m, field)) found.emplace_back(owner, m[1]);
  }
  return found;
}

}  // namespace

TEST_CASE("every option is read by code outside of config: none is accepted and ignored") {
  const auto code = sources();
  const auto fields = option_fields();
  CHECK(fields.size() > 60);
  for (const auto& [owner, name] : fields) {
    const bool read = std::regex_search(code, std::regex{"(\\.|->|::)" + name + "\\b"});
    CHECK_MESSAGE(read, owner, "::", name, " is declared, and nothing reads it");
  }
}
