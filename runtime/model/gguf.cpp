#include "runtime/model/gguf.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

static_assert(std::endian::native == std::endian::little, "GGUF files are read in place, little-endian");

namespace mooncaf {

namespace {

constexpr std::uint32_t magic = 0x46554747;  // "GGUF"
constexpr std::uint64_t default_alignment = 32;
constexpr std::uint64_t max_alignment = 1 << 16;
constexpr std::uint64_t max_key_bytes = 65535;         // the specification's own limit
constexpr std::uint64_t max_tensor_name_bytes = 4096;  // ggml stops at 64; names only have to stay printable
// Arrays of arrays are legal but not in use; the limit bounds the recursion of the parser.
constexpr unsigned max_array_depth = 4;

/// Bytes of a scalar; 0 for strings, arrays and unknown tags.
constexpr std::size_t scalar_bytes(gguf_type t) noexcept {
  switch (t) {
    case gguf_type::u8:
    case gguf_type::i8:
    case gguf_type::boolean:
      return 1;
    case gguf_type::u16:
    case gguf_type::i16:
      return 2;
    case gguf_type::u32:
    case gguf_type::i32:
    case gguf_type::f32:
      return 4;
    case gguf_type::u64:
    case gguf_type::i64:
    case gguf_type::f64:
      return 8;
    case gguf_type::string:
    case gguf_type::array:
      return 0;
  }
  return 0;
}

constexpr bool is_integer(gguf_type t) noexcept {
  return scalar_bytes(t) != 0 && t != gguf_type::f32 && t != gguf_type::f64 && t != gguf_type::boolean;
}
constexpr bool is_number(gguf_type t) noexcept { return scalar_bytes(t) != 0 && t != gguf_type::boolean; }

template <class T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// An integer of either signedness: the pair (negative?, two's complement bits).
struct wide_integer {
  bool negative = false;
  std::uint64_t bits = 0;
};

wide_integer integer_at(gguf_type t, const std::byte* at) noexcept {
  const auto from_signed = [](std::int64_t v) { return wide_integer{v < 0, static_cast<std::uint64_t>(v)}; };
  switch (t) {
    case gguf_type::u8:
      return {false, load<std::uint8_t>(at)};
    case gguf_type::u16:
      return {false, load<std::uint16_t>(at)};
    case gguf_type::u32:
      return {false, load<std::uint32_t>(at)};
    case gguf_type::u64:
      return {false, load<std::uint64_t>(at)};
    case gguf_type::i8:
      return from_signed(load<std::int8_t>(at));
    case gguf_type::i16:
      return from_signed(load<std::int16_t>(at));
    case gguf_type::i32:
      return from_signed(load<std::int32_t>(at));
    case gguf_type::i64:
      return from_signed(load<std::int64_t>(at));
    default:
      return {};
  }
}

double number_at(gguf_type t, const std::byte* at) noexcept {
  if (t == gguf_type::f32) return load<float>(at);
  if (t == gguf_type::f64) return load<double>(at);
  const auto v = integer_at(t, at);
  return v.negative ? static_cast<double>(static_cast<std::int64_t>(v.bits)) : static_cast<double>(v.bits);
}

bool fits_signed(wide_integer v) noexcept {
  return v.negative || v.bits <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
}

/// Keys and names come from the file; error texts must stay one readable line.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80)) out += c >= 0x20 && c < 0x7f ? c : '?';
  if (text.size() > 80) out += "...";
  return out;
}

}  // namespace

std::string_view to_string(gguf_type t) noexcept {
  static constexpr std::string_view names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                               "bool", "string", "array", "u64", "i64", "f64"};
  const auto i = static_cast<std::size_t>(t);
  return i < std::size(names) ? names[i] : "unknown";
}

/// A cursor over the file. The first failed read sets the error; every later read then fails as well.
class gguf_parser {
 public:
  gguf_parser(std::span<const std::byte> bytes, std::string_view name, std::size_t readable)
      : bytes_(bytes), readable_(std::min(readable, bytes.size())) {
    file_.name_ = std::string(name);
  }

  result<gguf_file> run() {
    if (!header() || !metadata() || !directory() || !place_tensors()) return fail(std::move(*error_));
    return std::move(file_);
  }

 private:
  bool stop(ec code, std::uint64_t offset, const std::string& what) {
    if (!error_) error_ = error{code, file_.name_ + ": at byte " + std::to_string(offset) + ": " + what};
    return false;
  }
  bool corrupt(std::uint64_t offset, const std::string& what) { return stop(ec::corrupt, offset, what); }

  std::uint64_t left() const noexcept { return readable_ - at_; }

  template <class T>
  bool read(T& value, const char* what) {
    if (left() < sizeof(T)) return corrupt(at_, std::string("file ends inside ") + what);
    value = load<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return true;
  }

  bool read_string(std::string_view& text, std::uint64_t limit, const char* what) {
    const auto begin = at_;
    std::uint64_t length = 0;
    if (!read(length, what)) return false;
    if (length > left())
      return corrupt(begin, std::string(what) + " claims " + std::to_string(length) + " bytes, " +
                                std::to_string(left()) + " are left");
    if (length > limit)
      return corrupt(begin, std::string(what) + " has " + std::to_string(length) + " bytes, at most " +
                                std::to_string(limit) + " are allowed");
    text = {reinterpret_cast<const char*>(bytes_.data() + at_), static_cast<std::size_t>(length)};
    at_ += length;
    return true;
  }

  bool read_type(gguf_type& type, const std::string& what) {
    const auto begin = at_;
    std::uint32_t tag = 0;
    if (!read(tag, "a value type")) return false;
    if (tag > static_cast<std::uint32_t>(gguf_type::f64))
      return corrupt(begin, what + " has unknown value type " + std::to_string(tag));
    type = static_cast<gguf_type>(tag);
    return true;
  }

  bool header() {
    std::uint32_t word = 0;
    if (!read(word, "the magic number")) return false;
    if (word != magic) return corrupt(0, "not a GGUF file (it does not begin with \"GGUF\")");
    if (!read(file_.version_, "the version")) return false;
    if (file_.version_ != 2 && file_.version_ != 3)
      return stop(
          ec::unsupported, 4,
          "GGUF version " + std::to_string(file_.version_) +
              (file_.version_ == 0x03000000 || file_.version_ == 0x02000000 ? " (a big-endian file)" : "") +
              "; versions 2 and 3, little-endian, are read");
    if (!read(n_tensors_, "the tensor count") || !read(n_keys_, "the metadata count")) return false;
    // A directory entry takes at least 8 + 4 + 8 + 4 + 8 bytes, a metadata entry at least 8 + 4 + 1.
    if (n_tensors_ > left() / 32)
      return corrupt(8, "tensor count " + std::to_string(n_tensors_) + " cannot fit into the file");
    if (n_keys_ > left() / 13)
      return corrupt(16, "metadata count " + std::to_string(n_keys_) + " cannot fit into the file");
    return true;
  }

  bool read_value(gguf_value& value, const std::string& what) {
    if (!read_type(value.type, what)) return false;
    value.element = value.type;
    if (value.type == gguf_type::array) return read_array(value, what, 1);
    return read_elements(value, what);
  }

  /// Reads `value.count` elements of the scalar or string type `value.element`.
  bool read_elements(gguf_value& value, const std::string& what) {
    const auto begin = at_;
    const auto size =
        value.element == gguf_type::string ? sizeof(std::uint64_t) : scalar_bytes(value.element);
    if (value.count > left() / size)
      return corrupt(begin, what + " claims " + std::to_string(value.count) + " elements of type " +
                                std::string(to_string(value.element)) + ", " + std::to_string(left()) +
                                " bytes are left");
    if (value.element != gguf_type::string) {
      value.data = bytes_.subspan(at_, static_cast<std::size_t>(value.count) * size);
      at_ += value.data.size();
      return true;
    }
    value.strings.reserve(static_cast<std::size_t>(value.count));
    for (std::uint64_t i = 0; i < value.count; ++i) {
      std::string_view text;
      if (!read_string(text, std::numeric_limits<std::uint64_t>::max(), "a string value")) return false;
      value.strings.push_back(text);
    }
    return true;
  }

  bool read_array(gguf_value& value, const std::string& what, unsigned depth) {
    const auto begin = at_;
    if (!read_type(value.element, what) || !read(value.count, "an array length")) return false;
    if (value.element != gguf_type::array) return read_elements(value, what);
    if (depth >= max_array_depth)
      return corrupt(begin, what + " nests arrays deeper than " + std::to_string(max_array_depth));
    if (value.count > left() / 12)
      return corrupt(begin, what + " claims " + std::to_string(value.count) + " nested arrays");
    for (std::uint64_t i = 0; i < value.count; ++i) {
      gguf_value inner;  // checked and skipped: no accessor offers nested arrays
      if (!read_array(inner, what, depth + 1)) return false;
    }
    return true;
  }

  bool metadata() {
    file_.metadata_.reserve(static_cast<std::size_t>(n_keys_));
    for (std::uint64_t i = 0; i < n_keys_; ++i) {
      const auto begin = at_;
      std::string_view key;
      if (!read_string(key, max_key_bytes, "a metadata key")) return false;
      const auto what = "metadata '" + printable(key) + "'";
      gguf_value value;
      if (!read_value(value, what)) return false;
      if (!file_.metadata_.emplace(key, std::move(value)).second)
        return corrupt(begin, what + " appears twice");
    }
    return true;
  }

  bool directory() {
    file_.tensors_.reserve(static_cast<std::size_t>(n_tensors_));
    offsets_.reserve(static_cast<std::size_t>(n_tensors_));
    for (std::uint64_t i = 0; i < n_tensors_; ++i)
      if (!directory_entry()) return false;
    return true;
  }

  /// Reads a tensor's entry. The data's place is checked in `place_tensors`, once alignment is known.
  bool directory_entry() {
    const auto begin = at_;
    gguf_tensor t;
    if (!read_string(t.name, max_tensor_name_bytes, "a tensor name")) return false;
    const auto what = "tensor '" + printable(t.name) + "'";
    if (!read(t.n_dims, "a tensor's dimension count")) return false;
    if (t.n_dims < 1 || t.n_dims > 4)
      return corrupt(begin, what + " has " + std::to_string(t.n_dims) + " dimensions, 1 to 4 are allowed");
    std::uint64_t elements = 1;
    for (std::uint32_t d = 0; d < t.n_dims; ++d) {
      if (!read(t.dims[d], "a tensor's dimensions")) return false;
      if (t.dims[d] == 0 || t.dims[d] > std::numeric_limits<std::int64_t>::max() / elements)
        return corrupt(begin, what + " has dimension " + std::to_string(d) + " = " +
                                  std::to_string(t.dims[d]) + ", which is zero or overflows");
      elements *= t.dims[d];
    }
    std::uint32_t type = 0;
    std::uint64_t offset = 0;
    if (!read(type, "a tensor's type") || !read(offset, "a tensor's offset")) return false;
    t.type = static_cast<ggml_type>(type);
    if (block_elements(t.type) == 0)
      return stop(ec::unsupported, begin,
                  what + " has element type " + std::to_string(type) +
                      "; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q5_K and Q6_K are read");
    if (t.dims[0] % block_elements(t.type) != 0)
      return corrupt(begin, what + " has rows of " + std::to_string(t.dims[0]) +
                                " elements, not a multiple of " + std::to_string(block_elements(t.type)) +
                                " as " + std::string(to_string(t.type)) + " needs");
    if (!file_.tensor_index_.emplace(t.name, file_.tensors_.size()).second)
      return corrupt(begin, what + " appears twice");
    file_.tensors_.push_back(t);
    offsets_.push_back({offset, begin});
    return true;
  }

  bool alignment(std::uint64_t& value) {
    auto found = file_.unsigned_integer("general.alignment", default_alignment);
    if (!found) {
      error_ = found.error();
      return false;
    }
    value = *found;
    if (!std::has_single_bit(value) || value > max_alignment)
      return corrupt(at_, "general.alignment is " + std::to_string(value) + ", not a power of two up to " +
                              std::to_string(max_alignment));
    return true;
  }

  /// Cuts the data section into the tensors' bytes: aligned, inside the file, no two sharing a byte.
  bool place_tensors() {
    std::uint64_t align = 0;
    if (!alignment(align)) return false;
    const std::uint64_t base = (at_ + align - 1) / align * align;
    const std::uint64_t room = base < bytes_.size() ? bytes_.size() - base : 0;
    std::vector<std::pair<std::uint64_t, std::size_t>> order;
    order.reserve(offsets_.size());
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      auto& t = file_.tensors_[i];
      const auto what = "tensor '" + printable(t.name) + "'";
      const auto [offset, entry] = offsets_[i];
      if (offset % align != 0)
        return corrupt(entry, what + " has offset " + std::to_string(offset) + ", not a multiple of " +
                                  std::to_string(align));
      // The element count fits 63 bits, but bytes per block may exceed elements per block (F32: 4 to 1).
      const std::uint64_t blocks = t.dims[0] / block_elements(t.type) * t.dims[1] * t.dims[2] * t.dims[3];
      if (offset > room || blocks > (room - offset) / block_bytes(t.type))
        return corrupt(entry, what + " lies at data offset " + std::to_string(offset) + " and needs " +
                                  std::to_string(blocks) + " blocks of " +
                                  std::to_string(block_bytes(t.type)) +
                                  " bytes, but the data section has only " + std::to_string(room) + " bytes");
      t.data = bytes_.subspan(static_cast<std::size_t>(base + offset),
                              static_cast<std::size_t>(blocks) * block_bytes(t.type));
      order.emplace_back(offset, i);
    }
    std::sort(order.begin(), order.end());
    for (std::size_t i = 1; i < order.size(); ++i) {
      const auto& before = file_.tensors_[order[i - 1].second];
      if (order[i].first - order[i - 1].first < before.data.size())
        return corrupt(offsets_[order[i].second].entry, "tensors '" + printable(before.name) + "' and '" +
                                                            printable(file_.tensors_[order[i].second].name) +
                                                            "' overlap");
    }
    return true;
  }

  struct placement {
    std::uint64_t offset;  ///< from the start of the data section
    std::uint64_t entry;   ///< where the directory entry lies in the file
  };

  std::span<const std::byte> bytes_;
  const std::size_t readable_;
  std::uint64_t at_ = 0;
  std::uint64_t n_tensors_ = 0;
  std::uint64_t n_keys_ = 0;
  std::vector<placement> offsets_;
  gguf_file file_;
  std::optional<error> error_;
};

result<gguf_file> parse_gguf(std::span<const std::byte> bytes, std::string_view name, std::size_t readable) {
  return gguf_parser(bytes, name, readable).run();
}

const gguf_tensor* gguf_file::tensor(std::string_view name) const noexcept {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

const gguf_value* gguf_file::find(std::string_view key) const noexcept {
  const auto it = metadata_.find(key);
  return it == metadata_.end() ? nullptr : &it->second;
}

namespace {

tl::unexpected<error> absent(const gguf_file& file, std::string_view key) {
  return fail(ec::not_found, file.name() + ": metadata '" + std::string(key) + "' is missing");
}
tl::unexpected<error> misfit(const gguf_file& file, std::string_view key, const gguf_value& v,
                             const char* wanted) {
  std::string type{to_string(v.type)};
  if (v.type == gguf_type::array) type += " of " + std::string(to_string(v.element));
  return fail(ec::corrupt,
              file.name() + ": metadata '" + std::string(key) + "' (" + type + ") is not " + wanted);
}

}  // namespace

result<std::string_view> gguf_file::text(std::string_view key) const {
  const auto* v = find(key);
  if (v == nullptr) return absent(*this, key);
  if (v->type != gguf_type::string) return misfit(*this, key, *v, "a string");
  return v->strings.front();
}

result<std::uint64_t> gguf_file::unsigned_integer(std::string_view key) const {
  const auto* v = find(key);
  if (v == nullptr) return absent(*this, key);
  if (!is_integer(v->type)) return misfit(*this, key, *v, "an integer");
  const auto value = integer_at(v->type, v->data.data());
  if (value.negative) return misfit(*this, key, *v, "zero or greater");
  return value.bits;
}

result<double> gguf_file::number(std::string_view key) const {
  const auto* v = find(key);
  if (v == nullptr) return absent(*this, key);
  if (!is_number(v->type)) return misfit(*this, key, *v, "a number");
  const double value = number_at(v->type, v->data.data());
  if (!std::isfinite(value)) return misfit(*this, key, *v, "finite");
  return value;
}

result<bool> gguf_file::boolean(std::string_view key) const {
  const auto* v = find(key);
  if (v == nullptr) return absent(*this, key);
  if (v->type != gguf_type::boolean) return misfit(*this, key, *v, "a boolean");
  return v->data.front() != std::byte{0};
}

result<std::span<const std::string_view>> gguf_file::strings(std::string_view key) const {
  const auto* v = find(key);
  if (v == nullptr) return absent(*this, key);
  if (v->type != gguf_type::array || v->element != gguf_type::string)
    return misfit(*this, key, *v, "an array of strings");
  return std::span<const std::string_view>(v->strings);
}

result<std::vector<float>> gguf_file::floats(std::string_view key) const {
  const auto* v = find(key);
  if (v == nullptr) return absent(*this, key);
  if (v->type != gguf_type::array || !is_number(v->element))
    return misfit(*this, key, *v, "an array of numbers");
  std::vector<float> out(static_cast<std::size_t>(v->count));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(number_at(v->element, v->data.data() + i * scalar_bytes(v->element)));
  return out;
}

result<std::vector<std::int64_t>> gguf_file::integers(std::string_view key) const {
  const auto* v = find(key);
  if (v == nullptr) return absent(*this, key);
  if (v->type != gguf_type::array || !is_integer(v->element))
    return misfit(*this, key, *v, "an array of integers");
  std::vector<std::int64_t> out(static_cast<std::size_t>(v->count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto value = integer_at(v->element, v->data.data() + i * scalar_bytes(v->element));
    if (!fits_signed(value)) return misfit(*this, key, *v, "within 63 bits");
    out[i] = static_cast<std::int64_t>(value.bits);
  }
  return out;
}

result<std::string_view> gguf_file::text(std::string_view key, std::string_view fallback) const {
  if (!has(key)) return fallback;
  return text(key);
}
result<std::uint64_t> gguf_file::unsigned_integer(std::string_view key, std::uint64_t fallback) const {
  if (!has(key)) return fallback;
  return unsigned_integer(key);
}
result<double> gguf_file::number(std::string_view key, double fallback) const {
  if (!has(key)) return fallback;
  return number(key);
}
result<bool> gguf_file::boolean(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  return boolean(key);
}

}  // namespace mooncaf
