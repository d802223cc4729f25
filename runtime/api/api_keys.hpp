#pragma once
// Access to the API: one key for all, or several from a file, each with a tenant and its limits.

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/service_share.hpp"
#include "runtime/base/units.hpp"
#include "runtime/sched/rate_limit.hpp"

namespace mooncaf {

/// The rights and limits of one key.
struct tenant_settings {
  std::string name;  ///< empty: the one key of `--api-key`, or no key at all
  std::string key;
  bool own_cache = false;        ///< shares cached prefixes with no other tenant
  bool operates = false;         ///< may see /cluster, /metrics and /integrity, which tell of all tenants
  std::uint8_t priority = 1;     ///< the best that a named tenant may ask for, and its own if it does not ask
  std::uint32_t per_minute = 0;  ///< answers begun in a minute; 0: any number
  std::uint32_t concurrent = 0;  ///< answers under way at once; 0: any number
  std::uint32_t share = 1;       ///< of the service where requests wait, against other tenants' shares
};

/// A tenant at work. @thread Safe.
class tenant : public std::enable_shared_from_this<tenant> {
 public:
  explicit tenant(tenant_settings s) : settings_(std::move(s)), rate_(settings_.per_minute) {}

  const tenant_settings& settings() const noexcept { return settings_; }
  /// The salt of its prefixes. Salts of tenants with a cache of their own equal no salt that another can
  /// send.
  std::string salt(std::string_view asked) const;
  std::uint8_t priority(std::optional<std::uint8_t> asked) const;
  /// Requests of one number are taken for alike: the tenant's and, among them, each `user`'s. 0: no name.
  std::uint64_t number(std::string_view user) const;
  /// Requests that wait take turns by it, whoever of the tenant's users sent them.
  service_share share() const { return {number({}), settings_.share}; }

  struct refusal {
    error cause;
    duration retry_after{};  ///< zero: a retry is of no use
  };
  /// Counts answers as long as the returned pointer lives.
  /// @error `ec::overloaded` with the limit; `ec::invalid_argument` for more answers than could ever be had
  /// at once.
  tl::expected<std::shared_ptr<void>, refusal> enter(time_point now, std::uint32_t answers);

 private:
  const tenant_settings settings_;
  std::mutex mutex_;
  rate_limit rate_;
  std::uint32_t under_way_ = 0;
};

/// All keys. Immutable.
class api_keys {
 public:
  /// Reads `api_key`, `api_key_file`, `api_keys_file` and the environment's MOONCAF_API_KEY.
  /// @error `ec::io_error` or `ec::invalid_argument` with the file, and the line where there is one.
  static result<api_keys> load(const gateway_options& options);
  /// The tenants of a file: a [section] for each, with `key` and any of `own_cache`, `operates`, `priority`,
  /// `requests_per_minute`, `max_concurrent`, `share`.
  static result<std::vector<tenant_settings>> parse(std::string_view text, std::string_view name);

  explicit api_keys(std::vector<tenant_settings> tenants);
  /// Whether requests have to show a key.
  bool needed() const noexcept { return !tenants_.empty(); }
  /// @param authorization  the header. @returns null if a key is needed and this is none.
  std::shared_ptr<tenant> find(std::string_view authorization) const;

 private:
  std::vector<std::shared_ptr<tenant>> tenants_;
  std::shared_ptr<tenant> anybody_;
};

}  // namespace mooncaf
