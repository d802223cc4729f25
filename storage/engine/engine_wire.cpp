#include "storage/engine/engine_wire.hpp"

#include "transport/net/bytes.hpp"

namespace mooncaf {

std::vector<std::byte> engine_wire::encode(const question& q) {
  std::vector<std::byte> payload, all;
  byte_writer out{payload};
  out.put(static_cast<std::uint8_t>(q.what));
  out.put_text(q.name);
  out.put_text(q.text);
  byte_writer framed{all};
  framed.put(static_cast<std::uint32_t>(payload.size()));
  framed.put_bytes(payload);
  return all;
}

std::optional<engine_wire::question> engine_wire::parse(std::span<const std::byte> payload) {
  byte_reader in{payload};
  question q;
  q.what = static_cast<op>(in.get<std::uint8_t>());
  q.name = in.get_text();
  q.text = in.get_text();
  if (!in.ok() || in.left() != 0 || (q.what != op::describe && q.what != op::notify)) return std::nullopt;
  return q;
}

}  // namespace mooncaf
