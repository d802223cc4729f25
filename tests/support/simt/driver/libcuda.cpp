// A library with the name and the functions of NVIDIA's driver, as far as gpu/cuda uses them, over the
// machine of this folder: what the product opens is this one where LD_LIBRARY_PATH names its folder. So the
// product itself computes with
// `--device cuda` in tests, all of its dealings with the driver included.
//
// It refuses what the driver would: a call without a context, a handle that it did not make, an unknown
// kernel. What the driver does later is done at once. MOONCAF_FAKE_CUDA says what it is to go wrong with:
// "init", "none" (no GPU), "pageable" (host memory cannot be pinned), "nic" (which is right: it exports its
// memory, as a file that real NICs refuse for a dma-buf, and they reach it as peer memory), or
// "failing:FILE". Once there is such a file it says how the GPU fails, and at which launch from then on: "ecc
// 40". As on a GPU that launch is taken, and whatever comes next is refused, for good; but "memory 1" refuses
// one allocation.

#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/simt/kernel_functions.hpp"

namespace {

/// What this process was told to go wrong with.
std::string trouble() {
  const char* said = std::getenv("MOONCAF_FAKE_CUDA");
  return said == nullptr ? "" : said;
}

}  // namespace

struct CUctx_st {
  mooncaf::simt::machine gpu{std::size_t{1} << 30, trouble() == "nic"};
};
struct CUstream_st {};
struct CUevent_st {
  std::atomic<bool> recorded{false};
};

namespace {

constexpr std::size_t params_bytes[] = {
#define MOONCAF_SIZE(NAME, PARAMS, THREADS) sizeof(mooncaf::cuda::PARAMS),
    MOONCAF_CUDA_KERNELS(MOONCAF_SIZE)
#undef MOONCAF_SIZE
};

}  // namespace

/// A launch with parameters of its own.
struct CUgraphNode_st {
  std::size_t kernel = 0;
  unsigned threads = 0;
  mooncaf::simt::dimensions blocks;
  std::vector<std::byte> params;

  bool take(const CUDA_KERNEL_NODE_PARAMS& p) {
    const auto* const entry = reinterpret_cast<const mooncaf::cuda::kernel_entry*>(p.func);
    kernel = static_cast<std::size_t>(entry - mooncaf::cuda::kernel_table);
    if (kernel >= mooncaf::cuda::kernel_count || p.blockDimY != 1 || p.blockDimZ != 1 ||
        p.sharedMemBytes != 0 || p.extra != nullptr)
      return false;
    threads = p.blockDimX;
    blocks = {p.gridDimX, p.gridDimY, p.gridDimZ};
    const auto* const from = static_cast<const std::byte*>(p.kernelParams[0]);
    params.assign(from, from + params_bytes[kernel]);
    return true;
  }
  void run(mooncaf::simt::machine& gpu) const {
    gpu.launch(mooncaf::cuda::kernel_table[kernel].symbol,
               mooncaf::simt::kernel_function(static_cast<mooncaf::cuda::kernel>(kernel)), params, threads,
               blocks);
  }
};
struct CUgraph_st {
  std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
};
struct CUgraphExec_st {
  std::vector<CUgraphNode_st> launches;
  std::map<CUgraphNode, std::size_t> nodes;
};

namespace {

using namespace mooncaf;

constexpr std::size_t memory_bytes = std::size_t{1} << 30;

bool started = false;
thread_local CUcontext current = nullptr;

constexpr std::pair<const char*, CUresult> failures[] = {{"ecc", CUDA_ERROR_ECC_UNCORRECTABLE},
                                                         {"timeout", CUDA_ERROR_LAUNCH_TIMEOUT},
                                                         {"gone", CUDA_ERROR_UNKNOWN},
                                                         {"memory", CUDA_ERROR_OUT_OF_MEMORY}};

/// How the GPU fails, if it is to.
class failing {
 public:
  CUresult state() const { return state_; }
  /// @returns whether this launch is the one that is never heard of again.
  bool at_launch() {
    const std::lock_guard lock{mutex_};
    look();
    if (planned_ == CUDA_SUCCESS || planned_ == CUDA_ERROR_OUT_OF_MEMORY || left_ == 0 || --left_ > 0)
      return false;
    state_ = planned_;
    return true;
  }
  bool at_allocation() {
    const std::lock_guard lock{mutex_};
    look();
    return planned_ == CUDA_ERROR_OUT_OF_MEMORY && left_ > 0 && --left_ == 0;
  }

 private:
  void look() {
    if (planned_ != CUDA_SUCCESS || file_.empty()) return;
    std::ifstream in{file_};
    std::string name;
    if (!(in >> name >> left_)) return;
    for (const auto& [known, code] : failures) {
      if (name == known) planned_ = code;
    }
  }

  const std::string file_ = trouble().starts_with("failing:") ? trouble().substr(8) : "";
  std::mutex mutex_;
  CUresult planned_ = CUDA_SUCCESS;
  unsigned left_ = 0;
  std::atomic<CUresult> state_ = CUDA_SUCCESS;
};
failing& fate() {
  static failing f;
  return f;
}

/// Handles that are alive.
std::mutex handles_mutex;
std::set<const void*> handles;
template <class T>
T* remember(T* handle) {
  const std::lock_guard lock{handles_mutex};
  handles.insert(handle);
  return handle;
}
bool known(const void* handle) {
  const std::lock_guard lock{handles_mutex};
  return handles.contains(handle);
}
template <class T>
CUresult forget(T* handle) {
  {
    const std::lock_guard lock{handles_mutex};
    if (handles.erase(handle) == 0) return CUDA_ERROR_INVALID_HANDLE;
  }
  delete handle;
  return CUDA_SUCCESS;
}

/// GPUs that the driver shows. Each has memory of its own, and reaches no other's.
int gpus() { return trouble() == "none" ? 0 : trouble() == "two" ? 2 : 1; }

CUcontext context_of(int ordinal) {
  static CUctx_st first;
  if (ordinal == 0) return &first;
  static CUctx_st second;
  return &second;
}

/// The GPU that has this address; -1: none.
int owner_of(const std::byte* at) {
  for (int i = 0; i < gpus(); ++i)
    if (context_of(i)->gpu.owns(at)) return i;
  return -1;
}

/// work() on the current context, if there is one and the handle is alive.
template <class Work>
CUresult in_context(const void* handle, const Work& work) {
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr && !known(handle)) return CUDA_ERROR_INVALID_HANDLE;
  if (const auto state = fate().state(); state != CUDA_SUCCESS) return state;
  try {
    return work(current->gpu);
  } catch (const simt::kernel_fault& f) {
    std::fprintf(stderr, "%s\n", f.what());
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
}

CUresult copy(CUstream stream, void* to, const void* from, std::size_t bytes) {
  return in_context(stream, [&](simt::machine& gpu) {
    gpu.copy(to, from, bytes);
    return CUDA_SUCCESS;
  });
}

std::byte* memory(CUdeviceptr at) { return reinterpret_cast<std::byte*>(at); }

}  // namespace

extern "C" {

CUresult CUDAAPI cuInit(unsigned) {
  if (trouble() == "init") return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  started = true;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGetErrorName(CUresult code, const char** name) {
  *name = code == CUDA_ERROR_ECC_UNCORRECTABLE        ? "CUDA_ERROR_ECC_UNCORRECTABLE"
          : code == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
          : code == CUDA_ERROR_NOT_PERMITTED          ? "CUDA_ERROR_NOT_PERMITTED"
          : code == CUDA_ERROR_LAUNCH_TIMEOUT         ? "CUDA_ERROR_LAUNCH_TIMEOUT"
          : code == CUDA_ERROR_UNKNOWN                ? "CUDA_ERROR_UNKNOWN"
          : code == CUDA_ERROR_OUT_OF_MEMORY          ? "CUDA_ERROR_OUT_OF_MEMORY"
                                                      : "CUDA_ERROR";
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGetErrorString(CUresult code, const char** text) {
  *text = code == CUDA_ERROR_ECC_UNCORRECTABLE ? "uncorrectable ECC error encountered" : "an error";
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetCount(int* count) {
  if (!started) return CUDA_ERROR_NOT_INITIALIZED;
  *count = gpus();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal < gpus() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice) {
  std::strncpy(name, "fake", static_cast<std::size_t>(length));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
           : which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT   ? 4
           : which == CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED      ? trouble() == "nic"
                                                                 : 0;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuPointerGetAttribute(void* value, CUpointer_attribute which, CUdeviceptr at) {
  const auto owner = owner_of(memory(at));
  if (which != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL || owner < 0) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int*>(value) = owner;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemGetHandleForAddressRange(void* handle, CUdeviceptr at, std::size_t bytes,
                                               CUmemRangeHandleType type, unsigned long long) {
  if (trouble() != "nic") return CUDA_ERROR_NOT_SUPPORTED;
  if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || (at | bytes) % 4096 != 0 || owner_of(memory(at)) < 0)
    return CUDA_ERROR_INVALID_VALUE;
  const int file = ::memfd_create("no dma-buf", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<::off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *static_cast<int*>(handle) = file;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  *bytes = memory_bytes;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = context_of(device);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  current = context;
  const bool ours =
      context == nullptr || context == context_of(0) || (gpus() == 2 && context == context_of(1));
  return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  // What nvcc's fat binaries begin with.
  if (std::memcmp(image, "\x50\xed\x55\xba", 4) != 0) return CUDA_ERROR_INVALID_IMAGE;
  *module = reinterpret_cast<CUmodule>(current);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  for (const auto& entry : cuda::kernel_table) {
    if (std::strcmp(entry.symbol, name) != 0) continue;
    *function = reinterpret_cast<CUfunction>(const_cast<cuda::kernel_entry*>(&entry));
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}
CUresult CUDAAPI cuMemAlloc(CUdeviceptr* at, std::size_t bytes) {
  return in_context(nullptr, [&](simt::machine& gpu) {
    if (fate().at_allocation()) return CUDA_ERROR_OUT_OF_MEMORY;
    *at = reinterpret_cast<CUdeviceptr>(gpu.allocate(bytes));
    return *at == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuMemFree(CUdeviceptr at) {
  return in_context(nullptr, [&](simt::machine& gpu) {
    gpu.release(memory(at));
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuMemHostRegister(void* at, std::size_t bytes, unsigned flags) {
  return in_context(nullptr, [&](simt::machine& gpu) {
    if (trouble() == "pageable") return CUDA_ERROR_NOT_PERMITTED;
    if (bytes == 0 || (flags & CU_MEMHOSTREGISTER_DEVICEMAP) == 0) return CUDA_ERROR_INVALID_VALUE;
    return gpu.pin({static_cast<std::byte*>(at), bytes}) ? CUDA_SUCCESS
                                                         : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  });
}
CUresult CUDAAPI cuMemHostUnregister(void* at) {
  return in_context(nullptr, [&](simt::machine& gpu) {
    return gpu.unpin(static_cast<std::byte*>(at)) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  });
}
CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr* there, void* at, unsigned) {
  *there = reinterpret_cast<CUdeviceptr>(at);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return copy(stream, memory(to), from, bytes);
}
CUresult CUDAAPI cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy(stream, to, memory(from), bytes);
}
CUresult CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D* c, CUstream stream) {
  const bool in = c->srcMemoryType == CU_MEMORYTYPE_HOST && c->dstMemoryType == CU_MEMORYTYPE_DEVICE;
  const bool out = c->srcMemoryType == CU_MEMORYTYPE_DEVICE && c->dstMemoryType == CU_MEMORYTYPE_HOST;
  if ((!in && !out) || c->srcPitch < c->WidthInBytes || c->dstPitch < c->WidthInBytes)
    return CUDA_ERROR_INVALID_VALUE;
  const auto* from = in ? static_cast<const std::byte*>(c->srcHost) : memory(c->srcDevice);
  auto* to = in ? memory(c->dstDevice) : static_cast<std::byte*>(c->dstHost);
  for (std::size_t row = 0; row < c->Height; ++row) {
    const auto done = copy(stream, to + row * c->dstPitch, from + row * c->srcPitch, c->WidthInBytes);
    if (done != CUDA_SUCCESS) return done;
  }
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* stream, unsigned, int priority) {
  return in_context(nullptr, [&](simt::machine&) {
    if (priority > 0 || priority < -5) return CUDA_ERROR_INVALID_VALUE;
    *stream = remember(new CUstream_st);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuStreamDestroy(CUstream stream) { return forget(stream); }
CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
  return in_context(stream, [](simt::machine&) { return CUDA_SUCCESS; });
}
CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  return in_context(stream,
                    [&](simt::machine&) { return known(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}
CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned) {
  return in_context(nullptr, [&](simt::machine&) {
    *event = remember(new CUevent_st);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuEventDestroy(CUevent event) { return forget(event); }
CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
  return in_context(stream, [&](simt::machine&) {
    if (!known(event)) return CUDA_ERROR_INVALID_HANDLE;
    event->recorded = true;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuEventSynchronize(CUevent event) {
  return in_context(
      event, [&](simt::machine&) { return event->recorded ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
}
CUresult CUDAAPI cuEventQuery(CUevent event) {
  return in_context(event, [](simt::machine&) { return CUDA_SUCCESS; });
}
CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads,
                                unsigned ty, unsigned tz, unsigned shared, CUstream stream, void** params,
                                void** extra) {
  return in_context(stream, [&](simt::machine& gpu) {
    if (fate().at_launch()) return CUDA_SUCCESS;
    CUDA_KERNEL_NODE_PARAMS p{};
    p.func = function;
    p.gridDimX = x;
    p.gridDimY = y;
    p.gridDimZ = z;
    p.blockDimX = threads;
    p.blockDimY = ty;
    p.blockDimZ = tz;
    p.sharedMemBytes = shared;
    p.kernelParams = params;
    p.extra = extra;
    CUgraphNode_st one;
    if (!one.take(p)) return CUDA_ERROR_INVALID_VALUE;
    one.run(gpu);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuGraphCreate(CUgraph* graph, unsigned) {
  return in_context(nullptr, [&](simt::machine&) {
    *graph = remember(new CUgraph_st);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuGraphDestroy(CUgraph graph) { return forget(graph); }
CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                                      std::size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  return in_context(graph, [&](simt::machine&) {
    // They run in the order in which they were added, which is right only if each waits for the last.
    const auto& nodes = graph->nodes;
    if (count != (nodes.empty() ? 0u : 1u) || (count == 1 && *before != nodes.back().get()))
      return CUDA_ERROR_INVALID_VALUE;
    auto made = std::make_shared<CUgraphNode_st>();
    if (!made->take(*params)) return CUDA_ERROR_INVALID_VALUE;
    *node = made.get();
    graph->nodes.push_back(std::move(made));
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* ready, CUgraph graph, unsigned long long) {
  return in_context(graph, [&](simt::machine&) {
    auto* const made = new CUgraphExec_st;
    for (const auto& node : graph->nodes)
      made->nodes.emplace(node.get(), made->launches.size()), made->launches.push_back(*node);
    *ready = remember(made);
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec ready, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS* params) {
  return in_context(ready, [&](simt::machine&) {
    const auto which = ready->nodes.find(node);
    if (which == ready->nodes.end() || !ready->launches[which->second].take(*params))
      return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuGraphLaunch(CUgraphExec ready, CUstream stream) {
  return in_context(stream, [&](simt::machine& gpu) {
    if (!known(ready)) return CUDA_ERROR_INVALID_HANDLE;
    for (const auto& l : ready->launches) {
      if (fate().at_launch()) break;
      l.run(gpu);
    }
    return CUDA_SUCCESS;
  });
}
CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec ready) { return forget(ready); }

}  // extern "C"
