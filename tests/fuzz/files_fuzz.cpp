// The list of a model's files that a source offers.

#include <cstdlib>

#include "storage/files/file_manifest.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using mooncaf::file_manifest;
  const auto read = file_manifest::parse(std::as_bytes(std::span{data, size}));
  if (!read) return 0;
  for (std::size_t i = 0; i < read->parts(); i += 1 + read->parts() / 64) {
    const auto p = read->part(i);
    if (p.bytes == 0 || p.offset + p.bytes > read->files()[p.file].bytes) std::abort();
  }
  const auto again = file_manifest::parse(read->encode({4096, 0, 0}));
  if (!again || again->files() != read->files() || again->folder() != read->folder()) std::abort();
  return 0;
}
