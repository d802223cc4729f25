#pragma once
// A directory of its own for one test, gone afterwards.

#include <cstdlib>
#include <filesystem>
#include <string>

namespace mooncaf::test {

class temp_dir {
 public:
  temp_dir() {
    std::string name = (std::filesystem::temp_directory_path() / "mooncaf-test-XXXXXX").string();
    if (::mkdtemp(name.data())) path_ = name;
  }
  ~temp_dir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  temp_dir(const temp_dir&) = delete;
  temp_dir& operator=(const temp_dir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace mooncaf::test
