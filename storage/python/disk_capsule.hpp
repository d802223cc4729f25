#pragma once

namespace mooncaf {

/// Name of a capsule that has a `std::shared_ptr<object_disk>`. Both extensions are built together, and only
/// then agree on that class: the name changes when the class does.
constexpr auto disk_capsule = "mooncaf.object_disk.1";

}  // namespace mooncaf
