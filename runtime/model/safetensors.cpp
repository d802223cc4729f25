#include "runtime/model/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/model/json_file.hpp"

namespace mooncaf {

using nlohmann::json;

namespace {

constexpr std::size_t length_bytes = 8;                ///< of the directory's length, which opens the file
constexpr std::uint64_t most_directory = 100'000'000;  ///< bytes; the reference reader's limit
constexpr std::size_t most_dims = 8;

std::optional<std::uint64_t> element_bytes(std::string_view dtype) {
  for (const auto* one : {"BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"})
    if (dtype == one) return 1;
  for (const auto* two : {"F16", "BF16", "I16", "U16"})
    if (dtype == two) return 2;
  for (const auto* four : {"F32", "I32", "U32"})
    if (dtype == four) return 4;
  for (const auto* eight : {"F64", "I64", "U64"})
    if (dtype == eight) return 8;
  return std::nullopt;
}

/// Bytes that a tensor of this shape takes; nothing if it is not a shape, or more than memory has addresses.
std::optional<std::uint64_t> size_of(const json& shape, std::uint64_t element,
                                     std::vector<std::uint64_t>& dims) {
  if (!shape.is_array() || shape.size() > most_dims) return std::nullopt;
  std::uint64_t total = element;
  for (const auto& d : shape) {
    if (!d.is_number_unsigned()) return std::nullopt;
    dims.push_back(d.get<std::uint64_t>());
    if (__builtin_mul_overflow(total, dims.back(), &total)) return std::nullopt;
  }
  return total;
}

/// One entry of the directory. @param data  what follows the directory.
result<safetensors_tensor> read_entry(const std::string& name, const json& entry,
                                      std::span<const std::byte> data, const std::string& label) {
  const auto bad = [&](const std::string& what) {
    return fail(ec::corrupt, label + ": tensor '" + name.substr(0, 100) + "' " + what);
  };
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets"))
    return bad("lacks one of dtype, shape and data_offsets");
  const auto &dtype = entry["dtype"], &offsets = entry["data_offsets"];
  if (!dtype.is_string()) return bad("has a dtype that is no string");
  safetensors_tensor t{name, dtype.get<std::string>(), {}, {}};
  const auto element = element_bytes(t.dtype);
  if (!element)
    return fail(ec::unsupported, label + ": tensor '" + name.substr(0, 100) + "' has elements of type '" +
                                     t.dtype.substr(0, 20) + "', whose size is not known");
  const auto size = size_of(entry["shape"], *element, t.shape);
  if (!size) return bad("has no sane shape");
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    return bad("has data_offsets that are not two numbers");
  const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
  if (begin > end || end > data.size())
    return bad("lies at [" + std::to_string(begin) + ", " + std::to_string(end) + ") of " +
               std::to_string(data.size()) + " bytes of data");
  if (end - begin != *size)
    return bad("has " + std::to_string(end - begin) + " bytes, its shape asks for " + std::to_string(*size));
  t.data = data.subspan(begin, *size);
  return t;
}

}  // namespace

const safetensors_tensor* safetensors_file::tensor(std::string_view name) const noexcept {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

// Sizes are compared before they are added or allocated: the header's length and all offsets are foreign
// numbers.
result<safetensors_file> parse_safetensors(std::span<const std::byte> bytes, std::string_view name) {
  safetensors_file file;
  file.name_ = name;
  const auto bad = [&](const std::string& what) { return fail(ec::corrupt, file.name_ + ": " + what); };
  std::uint64_t length = 0;
  if (bytes.size() < length_bytes) return bad("ends at byte " + std::to_string(bytes.size()) + ", too short");
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > most_directory || length > bytes.size() - length_bytes)
    return bad("says at byte 0 that its directory has " + std::to_string(length) + " bytes, of a file of " +
               std::to_string(bytes.size()));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + length_bytes, length);
  const auto directory = parse_json_object(text, file.name_ + ": directory");
  if (!directory) return fail(directory.error());
  const auto data = bytes.subspan(length_bytes + length);
  for (const auto& [key, entry] : directory->items()) {
    if (key == "__metadata__") continue;
    auto tensor = read_entry(key, entry, data, file.name_);
    if (!tensor) return fail(std::move(tensor.error()));
    file.tensors_.push_back(std::move(*tensor));
  }
  const auto place = [](const safetensors_tensor& t) { return std::pair{t.data.data(), t.data.size()}; };
  std::ranges::sort(file.tensors_, {}, place);
  for (std::size_t i = 0; i < file.tensors_.size(); ++i) {
    const auto& t = file.tensors_[i];
    if (i > 0 && !t.data.empty() &&
        file.tensors_[i - 1].data.data() + file.tensors_[i - 1].data.size() > t.data.data())
      return bad("tensors '" + file.tensors_[i - 1].name.substr(0, 100) + "' and '" + t.name.substr(0, 100) +
                 "' overlap at byte " + std::to_string(t.data.data() - bytes.data()));
    file.index_.emplace(t.name, i);
  }
  return file;
}

}  // namespace mooncaf
