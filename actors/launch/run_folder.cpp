#include "actors/launch/run_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/base/posix.hpp"
#include "runtime/base/replace_file.hpp"

namespace mooncaf::launch {

namespace fs = std::filesystem;

result<process_mark> mark_of(int pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto name_end = text.rfind(')');  // the name may have spaces and brackets
  if (name_end == std::string::npos)
    return fail(ec::not_found, "process " + std::to_string(pid) + " does not run");
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  fields >> field;
  if (field == "Z") return fail(ec::not_found, "process " + std::to_string(pid) + " has ended");
  for (int i = 4; i <= 22; ++i) fields >> field;  // proc(5): the 22nd is the start time
  return process_mark{pid, std::strtoull(field.c_str(), nullptr, 10)};
}

result<std::string> run_folder::root() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return std::string{state} + "/mooncaf";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/')
    return fail(ec::not_found, "the user has no home folder for the state of clusters; set XDG_STATE_HOME");
  return std::string{home} + "/.local/state/mooncaf";
}

result<run_folder> run_folder::of(const std::string& of) {
  const auto slash = of.find('/');
  const bool plain = slash != std::string::npos && of.find('/', slash + 1) == std::string::npos &&
                     slash > 0 && slash + 1 < of.size() && of.find('.') == std::string::npos;
  if (!plain) return fail(ec::invalid_argument, "'" + of + "' is not CLUSTER/HOST");
  const auto at = root();
  if (!at) return fail(at.error());
  return run_folder{*at + "/" + of};
}

result<void> run_folder::make() const {
  const auto old = ::umask(077);
  std::error_code failed;
  fs::create_directories(path_ + "/nodes", failed);
  ::umask(old);
  if (failed) return fail(ec::io_error, "cannot make " + path_ + ": " + failed.message());
  return {};
}

void run_folder::remove() const {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  ::rmdir(fs::path{path_}.parent_path().c_str());
}

result<void> run_folder::write(const std::string& name, const std::string& text) const {
  return replace_file(file(name), text, 0600);
}

std::string run_folder::read(const std::string& name) const {
  std::ifstream in(file(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

result<void> run_folder::set_agent(int pid) const {
  const auto mark = mark_of(pid);
  if (!mark) return fail(mark.error());
  return write("agent.pid", std::to_string(mark->pid) + " " + std::to_string(mark->start) + "\n");
}

int run_folder::agent() const {
  std::istringstream in(read("agent.pid"));
  process_mark then;
  if (!(in >> then.pid >> then.start)) return 0;
  const auto now = mark_of(then.pid);
  return now && now->start == then.start ? then.pid : 0;
}

}  // namespace mooncaf::launch
