#pragma once
// Sockets of a host, as its agent looks at them: which are free, and whether a gateway serves.

#include <string>

namespace mooncaf::launch {

/// Whether a process could listen at HOST:PORT.
bool is_free(const std::string& at);

/// Whether the gateway at a URL, http://HOST:PORT or https://…, says at /health that requests could be served. Its
/// certificate is not checked: it names the host as clients know it, and nothing of worth is told or believed here.
bool serves(const std::string& url);

}  // namespace mooncaf::launch
