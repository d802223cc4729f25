#pragma once
// The web pages that may talk to this server. A browser lets any page send requests to any address, and a
// page even reads the answers if its owner points its name at our address ("DNS rebinding"); Host and Origin
// tell them apart.

#include <string>
#include <string_view>
#include <vector>

namespace mooncaf {

/// @thread Immutable; shareable.
class web_guard {
 public:
  /// @param origins   with commas: "https://chat.example.com", "local" (pages of this machine, any port), "*"
  /// (all)
  /// @param hosts     with commas: names that this server is called by, "local" (localhost and the machine's
  /// own names),
  ///                  "*" (all). Addresses are always allowed: an address cannot be pointed elsewhere.
  /// @param own_names what the machine is called
  web_guard(std::string_view origins, std::string_view hosts, std::vector<std::string> own_names);

  /// Whether a request may ask for this host. @param host  the Host header; empty (HTTP/1.0) is allowed.
  bool host_allowed(std::string_view host) const;
  /// Whether a page from elsewhere may read answers. @param origin  the Origin header.
  bool origin_allowed(std::string_view origin) const;
  /// Whether a request with these headers may be served: no Origin (no browser), that of our own page, or an
  /// allowed one.
  bool may_ask(std::string_view origin, std::string_view host) const;

 private:
  std::vector<std::string> origins_;
  std::vector<std::string> hosts_;
  std::vector<std::string> own_names_;
};

}  // namespace mooncaf
