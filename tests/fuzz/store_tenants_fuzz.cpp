// What a tenants file may say, and what a stranger may send to a segment's endpoint: whatever it is, those
// that are taken for tenants have a name, a key of their own and a quota, and what is read back is what was
// understood.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <span>

#include "actors/store/tenants_file.hpp"
#include "storage/objects/wire/endpoint_wire.hpp"

using namespace mooncaf;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto require = [](bool holds) {
    if (!holds) std::abort();
  };
  const auto all = store::parse_tenants({reinterpret_cast<const char*>(data), size}, "tenants");
  std::set<std::string> keys, names;
  for (const auto& t : all ? *all : std::vector<store_tenant>{})
    require(is_tenant_name(t.name) && names.insert(t.name).second && keys.insert(t.key).second &&
            t.limit.bytes > 0 && t.limit.disk_bytes > 0 && t.limit.objects > 0);
  const auto bytes = std::as_bytes(std::span{data, size});
  if (bytes.size() >= endpoint_wire::greeting_bytes) {
    const auto g = endpoint_wire::parse_greeting(bytes.first<endpoint_wire::greeting_bytes>());
    require(!g || endpoint_wire::parse_greeting(endpoint_wire::encode(*g))->tenant == g->tenant);
  }
  if (bytes.size() >= endpoint_wire::request_bytes) {
    const auto in = bytes.first<endpoint_wire::request_bytes>();
    const auto r = endpoint_wire::parse_request(in);
    require(!r || (r->bytes > 0 && std::ranges::equal(endpoint_wire::encode(*r), in)));
  }
  return 0;
}
