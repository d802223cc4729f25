#pragma once
// Which bytes of a file or folder are there, where a host has a part of it alone.
//
//   PATH.slice        the file with holes, or the folder of such files
//   PATH.slice.json   {"files": [[name, bytes], …], "here": [[file, offset, bytes], …]}
//
// PATH itself is not there, so nobody takes holes for content by accident.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/file_range.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf {

/// @thread  not synchronised
class file_slice {
 public:
  static std::string data_of(const std::string& path) { return path + ".slice"; }
  static std::string note_of(const std::string& path) { return path + ".slice.json"; }

  /// @error `ec::not_found`: PATH has no slice; `ec::corrupt`: the note is none, or its files have other sizes.
  static result<file_slice> read(const std::string& path);
  /// @error as `replace_file`
  result<void> write(const std::string& path) const;

  /// @param name  below the folder; of a file alone: empty
  void add_file(std::string name, std::uint64_t bytes) { files_.emplace_back(std::move(name), bytes); }
  /// @pre it lies within one of the files
  void add(const file_range& here);
  /// Whether all bytes of the range are there.
  bool has(const file_range& wanted) const;
  /// Names and sizes.
  const std::vector<std::pair<std::string, std::uint64_t>>& files() const noexcept { return files_; }
  std::uint64_t bytes_here() const;

 private:
  static result<file_slice> parse(const std::string& text, const std::string& note);

  std::vector<std::pair<std::string, std::uint64_t>> files_;  ///< name, bytes
  /// By file and where they begin: where they end. None touches another.
  std::map<std::pair<std::size_t, std::uint64_t>, std::uint64_t> here_;
};

}  // namespace mooncaf
