#include "storage/objects/wire/endpoint_wire.hpp"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "transport/net/bytes.hpp"
#include "transport/net/secret.hpp"

namespace mooncaf::endpoint_wire {

namespace {
template <std::size_t N, class Fill>
std::array<std::byte, N> filled(const Fill& fill) {
  std::vector<std::byte> bytes;
  byte_writer out{bytes};
  fill(out);
  std::array<std::byte, N> made{};
  std::copy(bytes.begin(), bytes.end(), made.begin());
  return made;
}
}  // namespace

std::array<std::byte, greeting_bytes> encode(const greeting& g) {
  return filled<greeting_bytes>([&](byte_writer& out) {
    out.put(g.incarnation);
    out.put_bytes(std::as_bytes(std::span{g.tenant}));
  });
}

std::optional<greeting> parse_greeting(std::span<const std::byte, greeting_bytes> in) {
  byte_reader from{in};
  greeting g;
  g.incarnation = from.get<std::uint64_t>();
  const auto name = from.take(tenant_bytes_max);
  const auto end = std::find(name.begin(), name.end(), std::byte{0});
  g.tenant.assign(reinterpret_cast<const char*>(name.data()), static_cast<std::size_t>(end - name.begin()));
  if (!is_tenant_name(g.tenant) && g.tenant != everyone) return std::nullopt;
  return g;
}

std::array<std::byte, request_bytes> encode(const request& r) {
  return filled<request_bytes>([&](byte_writer& out) {
    out.put(static_cast<std::uint8_t>(r.what));
    out.put(r.offset);
    out.put(r.bytes);
  });
}

std::optional<request> parse_request(std::span<const std::byte, request_bytes> in) {
  constexpr auto most = std::uint64_t{1} << 46;
  byte_reader from{in};
  const auto what = from.get<std::uint8_t>();
  request r{static_cast<op>(what), from.get<std::uint64_t>(), 0};
  r.bytes = from.get<std::uint64_t>();
  if (what < 1 || what > 3 || r.bytes == 0 || r.bytes > most || r.offset > most) return std::nullopt;
  return r;
}

std::array<std::byte, answer_bytes> encode(const answer& a) {
  return filled<answer_bytes>([&](byte_writer& out) {
    out.put(static_cast<std::int32_t>(a.code));
    out.put(a.checksum);
  });
}

answer parse_answer(std::span<const std::byte, answer_bytes> in) {
  byte_reader from{in};
  const auto code = as_store_code(from.get<std::int32_t>());
  return {code, from.get<std::uint64_t>()};
}

std::string endpoint_key(std::string_view store_key, const greeting& g) {
  std::string text = "key of the store ";  // text at both ends, so that nothing is trimmed off the key
  for (const auto c : store_key) {
    constexpr char digits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    text += {digits[byte >> 4], digits[byte & 15]};
  }
  const auto secret = cluster_secret::from_text(text);
  if (!secret) std::abort();  // cannot happen: the text is long enough for a secret
  const auto key = secret->derive("gate v1 " + std::to_string(g.incarnation) + " " + g.tenant);
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

}  // namespace mooncaf::endpoint_wire
