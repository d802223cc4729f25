#include "gpu/cuda/dma_buf.hpp"

#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

namespace mooncaf {
namespace {

/// The functions of libcuda.so.1 that are needed here. Never unloaded: it has threads.
struct driver {
  decltype(&::cuInit) init = nullptr;
  decltype(&::cuDriverGetVersion) version = nullptr;
  decltype(&::cuGetErrorName) error_name = nullptr;
  decltype(&::cuDeviceGetCount) device_count = nullptr;
  decltype(&::cuDeviceGetAttribute) device_attribute = nullptr;
  decltype(&::cuPointerGetAttribute) pointer_attribute = nullptr;
  decltype(&::cuMemGetHandleForAddressRange) handle_for_range = nullptr;
  std::string missing;  // why it cannot be used

  driver() {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      missing = "no NVIDIA driver on this host";
      return;
    }
    const auto load = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
      if (!function && missing.empty())
        missing = std::string{"the NVIDIA driver is too old: it has no "} + name;
    };
    load(init, "cuInit");
    load(version, "cuDriverGetVersion");
    load(error_name, "cuGetErrorName");
    load(device_count, "cuDeviceGetCount");
    load(device_attribute, "cuDeviceGetAttribute");
    load(pointer_attribute, "cuPointerGetAttribute");
    load(handle_for_range, "cuMemGetHandleForAddressRange");
    if (!missing.empty()) return;
    if (const auto code = init(0); code != CUDA_SUCCESS) missing = "cuInit: " + name(code);
  }
  std::string name(CUresult code) const {
    const char* text = nullptr;
    return error_name(code, &text) == CUDA_SUCCESS && text ? text : std::to_string(code);
  }
  bool exports(int device) const {
    int yes = 0;
    return device_attribute(&yes, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) == CUDA_SUCCESS && yes != 0;
  }
};

const driver& the_driver() {
  static const driver d;
  return d;
}

}  // namespace

result<exported_memory> export_dma_buf(std::uint64_t address, std::uint64_t length) {
  const auto& d = the_driver();
  if (!d.missing.empty()) return fail(ec::unsupported, d.missing);
  if (length == 0 || address > UINT64_MAX - length)
    return fail(ec::invalid_argument, "no such device memory");
  int device = 0;
  if (const auto code = d.pointer_attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
      code != CUDA_SUCCESS)
    return fail(ec::invalid_argument, "the address is not memory of a GPU: " + d.name(code));
  if (!d.exports(device))
    return fail(ec::unsupported, "GPU " + std::to_string(device) +
                                     " exports no dma-buf (it takes the open kernel modules of the driver)");
  // The driver wants whole pages of the host.
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  exported_memory out;
  out.offset = address % page;
  const auto pages = (out.offset + length + page - 1) / page;
  const auto code = d.handle_for_range(&out.descriptor, address - out.offset, pages * page,
                                       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (code != CUDA_SUCCESS) return fail(ec::unsupported, "the memory cannot be exported: " + d.name(code));
  return out;
}

result<std::string> describe_dma_buf_support() {
  const auto& d = the_driver();
  if (!d.missing.empty()) return fail(ec::unsupported, d.missing);
  int version = 0;
  int gpus = 0;
  if (d.version(&version) != CUDA_SUCCESS || d.device_count(&gpus) != CUDA_SUCCESS)
    return fail(ec::unsupported, "the NVIDIA driver does not answer");
  int exporting = 0;
  for (int i = 0; i < gpus; ++i) exporting += d.exports(i);
  if (exporting == 0)
    return fail(ec::unsupported,
                "none of " + std::to_string(gpus) +
                    " GPUs exports dma-bufs (it takes the open kernel modules of the driver)");
  return "dma-buf of " + std::to_string(exporting) + " of " + std::to_string(gpus) + " GPUs, CUDA driver " +
         std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace mooncaf
