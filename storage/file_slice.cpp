#include "storage/file_slice.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/base/replace_file.hpp"

namespace mooncaf {

namespace {

using nlohmann::json;

/// Whether `at` is an array of whole numbers from 0 up. @param first  where they begin
bool numbers(const json& at, std::size_t first, std::size_t count) {
  return at.is_array() && at.size() == count &&
         std::all_of(at.begin() + static_cast<std::ptrdiff_t>(first), at.end(),
                     [](const json& n) { return n.is_number_unsigned(); });
}

}  // namespace

result<file_slice> file_slice::parse(const std::string& text, const std::string& note) {
  const auto wrong = [&](const char* what) { return fail(ec::corrupt, note + ": " + what); };
  const auto read = json::parse(text, nullptr, false);
  if (!read.is_object() || !read.contains("files") || !read.contains("here") || !read["files"].is_array() ||
      !read["here"].is_array())
    return wrong("is no note of a slice");
  file_slice made;
  for (const auto& file : read["files"]) {
    if (!numbers(file, 1, 2) || !file[0].is_string()) return wrong("has a file without name and size");
    made.add_file(file[0], file[1]);
  }
  for (const auto& range : read["here"]) {
    if (!numbers(range, 0, 3)) return wrong("has a range that is none");
    const file_range r{range[0], range[1], range[2]};
    if (r.file >= made.files_.size() || r.offset > made.files_[r.file].second ||
        r.bytes > made.files_[r.file].second - r.offset)
      return wrong("has a range outside of its file");
    made.add(r);
  }
  return made;
}

result<file_slice> file_slice::read(const std::string& path) {
  namespace fs = std::filesystem;
  const auto note = note_of(path), data = data_of(path);
  std::ifstream in{note, std::ios::binary};
  std::error_code none;
  if (!in.is_open() || !fs::exists(data, none)) return fail(ec::not_found, path + " has no slice here");
  auto made = parse({std::istreambuf_iterator<char>(in), {}}, note);
  if (!made) return made;
  for (const auto& [name, bytes] : made->files_) {
    const auto file = name.empty() ? data : data + "/" + name;
    if (fs::file_size(file, none) != bytes || none)
      return fail(ec::corrupt, file + " is not the file that " + note + " is about");
  }
  return made;
}

result<void> file_slice::write(const std::string& path) const {
  json files = json::array(), here = json::array();
  for (const auto& [name, bytes] : files_) files.push_back({name, bytes});
  for (const auto& [at, end] : here_) here.push_back({at.first, at.second, end - at.second});
  return replace_file(note_of(path), json{{"files", files}, {"here", here}}.dump(), 0644);
}

void file_slice::add(const file_range& here) {
  if (here.bytes == 0) return;
  auto begin = here.offset, end = here.offset + here.bytes;
  auto at = here_.upper_bound({here.file, begin});
  if (at != here_.begin() && std::prev(at)->first.first == here.file && std::prev(at)->second >= begin) --at;
  while (at != here_.end() && at->first.first == here.file && at->first.second <= end) {
    begin = std::min(begin, at->first.second);
    end = std::max(end, at->second);
    at = here_.erase(at);
  }
  here_[{here.file, begin}] = end;
}

bool file_slice::has(const file_range& wanted) const {
  if (wanted.bytes == 0) return true;
  const auto after = here_.upper_bound({wanted.file, wanted.offset});
  if (after == here_.begin()) return false;
  const auto& [at, end] = *std::prev(after);
  return at.first == wanted.file && end >= wanted.offset + wanted.bytes;
}

std::uint64_t file_slice::bytes_here() const {
  std::uint64_t bytes = 0;
  for (const auto& [at, end] : here_) bytes += end - at.second;
  return bytes;
}

}  // namespace mooncaf
