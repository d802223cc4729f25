// The extension under `enable_ssd_offload`: the SSD tier, in a module of its own, because it needs RocksDB's
// library, which a machine may not have. The store's extension takes the tier that it opens (`disk_capsule`).

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "storage/objects/disk/rocksdb_object_disk.hpp"
#include "storage/python/disk_capsule.hpp"
#include "storage/python/interpreter_lock.hpp"

namespace py = pybind11;
using namespace mooncaf;

namespace {

/// @returns the SSD and nothing, or None and why not.
std::pair<py::object, std::string> open_disk(const std::string& path, std::uint64_t bytes) {
  rocksdb_object_disk_options options;
  options.path = path;
  options.bytes = bytes;
  options.policy.write = write_policy::write_through;
  options.own_process = false;
  auto opened = [&] {
    const without_lock free;
    return rocksdb_object_disk::open(std::move(options));
  }();
  if (!opened) return {py::none(), to_string(opened.error())};
  auto* const disk = new std::shared_ptr<object_disk>(std::move(*opened));
  return {py::capsule(disk, disk_capsule,
                      [](PyObject* from) {
                        delete static_cast<std::shared_ptr<object_disk>*>(
                            PyCapsule_GetPointer(from, disk_capsule));
                      }),
          {}};
}

}  // namespace

PYBIND11_MODULE(_ssd, m) {
  m.doc() = "The SSD tier of mooncaf's object store; use mooncaf.store.";
  m.def("open", &open_disk);
  // RocksDB's own end waits for threads of the process that a child was forked from.
  m.def("end_without_others", [] {
    ::on_exit(
        [](int status, void*) {
          std::fflush(nullptr);
          ::_exit(status);
        },
        nullptr);
  });
}
