// An NVIDIA GPU by the driver's interface, whose library is opened at run time.

#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu/cuda/cuda_device.hpp"
#include "gpu/cuda/fat_binary.hpp"

namespace mooncaf::cuda {

namespace {

// clang-format off
#define MOONCAF_DRIVER_FUNCTIONS(X) \
  X(cuInit) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) \
  X(cuDeviceGetAttribute) X(cuDeviceTotalMem) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) \
  X(cuCtxSetCurrent) X(cuCtxGetStreamPriorityRange) X(cuModuleLoadData) X(cuModuleUnload) \
  X(cuModuleGetFunction) X(cuMemAlloc) X(cuMemFree) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) \
  X(cuMemcpy2DAsync) X(cuMemHostRegister) X(cuMemHostUnregister) X(cuMemHostGetDevicePointer) \
  X(cuStreamCreateWithPriority) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamWaitEvent) \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventSynchronize) X(cuEventQuery) \
  X(cuLaunchKernel)
// clang-format on

/// Without these there are no graphs.
#define MOONCAF_GRAPH_FUNCTIONS(X) \
  X(cuGraphCreate)                 \
  X(cuGraphDestroy)                \
  X(cuGraphAddKernelNode)          \
  X(cuGraphInstantiate) X(cuGraphExecKernelNodeSetParams) X(cuGraphLaunch) X(cuGraphExecDestroy)

#define MOONCAF_TEXT(NAME) MOONCAF_TEXT_OF(NAME)
#define MOONCAF_TEXT_OF(NAME) #NAME

/// The functions of libcuda.so.1 that are used here; macros of cuda.h give each the name of its present
/// version. Never unloaded: it has threads.
struct library {
#define MOONCAF_MEMBER(NAME) std::decay_t<decltype(::NAME)> NAME##_ = nullptr;
  MOONCAF_DRIVER_FUNCTIONS(MOONCAF_MEMBER)
  MOONCAF_GRAPH_FUNCTIONS(MOONCAF_MEMBER)
#undef MOONCAF_MEMBER
  bool graphs = true;
  std::string missing;  ///< why it cannot be used

  library() {
    void* handle = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* why = ::dlerror();
      missing = std::string{"no CUDA driver on this host ("} + (why != nullptr ? why : "libcuda.so.1") +
                "); install NVIDIA's driver, or give --device host";
      return;
    }
#define MOONCAF_LOAD(NAME)                                                            \
  NAME##_ = reinterpret_cast<decltype(NAME##_)>(::dlsym(handle, MOONCAF_TEXT(NAME))); \
  if (NAME##_ == nullptr && missing.empty())                                          \
    missing = std::string{"the CUDA driver is too old: it has no "} + MOONCAF_TEXT(NAME);
    MOONCAF_DRIVER_FUNCTIONS(MOONCAF_LOAD)
#undef MOONCAF_LOAD
#define MOONCAF_LOAD(NAME)                                                            \
  NAME##_ = reinterpret_cast<decltype(NAME##_)>(::dlsym(handle, MOONCAF_TEXT(NAME))); \
  graphs &= NAME##_ != nullptr;
    MOONCAF_GRAPH_FUNCTIONS(MOONCAF_LOAD)
#undef MOONCAF_LOAD
    if (!missing.empty()) return;
    if (const auto code = cuInit_(0); code != CUDA_SUCCESS)
      missing = "the CUDA driver does not start: " + name(code);
  }
  std::string name(CUresult code) const {
    const char *id = nullptr, *text = nullptr;
    if (cuGetErrorName_(code, &id) != CUDA_SUCCESS || id == nullptr) return "error " + std::to_string(code);
    if (cuGetErrorString_(code, &text) != CUDA_SUCCESS || text == nullptr) return id;
    return std::string{id} + ", " + text;
  }
};

const library& driver() {
  static const library l;
  return l;
}

/// What the operator can do about an error.
const char* advice(CUresult code) {
  switch (code) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "; give less to --device-kv, or see with nvidia-smi who else uses the GPU";
    case CUDA_ERROR_ECC_UNCORRECTABLE:
      return "; its memory has an error: see nvidia-smi -q -d ECC, reset the GPU, replace it if that comes "
             "back";
    case CUDA_ERROR_LAUNCH_TIMEOUT:
      return "; a GPU that drives a display stops long kernels: use another, or a smaller "
             "--max-batch-tokens";
    case CUDA_ERROR_UNKNOWN:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_DEINITIALIZED:
      return "; the GPU does not answer: the kernel's log (dmesg) has the reason after \"Xid\"; reset the "
             "GPU "
             "or restart the host";
    default:
      return "; start again, and report this line if it comes back";
  }
}

/// An error that no caller could handle ends the worker.
void must(CUresult code, const char* what) {
  if (code != CUDA_SUCCESS)
    throw device_failure(std::string{what} + ": " + driver().name(code) + advice(code),
                         code != CUDA_ERROR_OUT_OF_MEMORY);
}

CUdeviceptr address(const std::byte* at) { return reinterpret_cast<CUdeviceptr>(at); }

class cuda_event final : public event {
 public:
  explicit cuda_event(CUcontext context) : context_(context) {
    must(driver().cuCtxSetCurrent_(context_), "context");
    must(driver().cuEventCreate_(&event_, CU_EVENT_DISABLE_TIMING), "event");
  }
  ~cuda_event() override {
    driver().cuCtxSetCurrent_(context_);
    driver().cuEventDestroy_(event_);
  }
  cuda_event(const cuda_event&) = delete;
  cuda_event& operator=(const cuda_event&) = delete;

  void wait() override {
    must(driver().cuCtxSetCurrent_(context_), "context");
    must(driver().cuEventSynchronize_(event_), "waiting for an event");
  }
  bool reached() const override {
    must(driver().cuCtxSetCurrent_(context_), "context");
    const auto code = driver().cuEventQuery_(event_);
    if (code != CUDA_ERROR_NOT_READY) must(code, "asking for an event");
    return code == CUDA_SUCCESS;
  }
  CUevent handle() const noexcept { return event_; }
  CUcontext context() const noexcept { return context_; }

 private:
  CUcontext context_;
  CUevent event_ = nullptr;
};

struct loaded_kernels {
  std::array<CUfunction, kernel_count> functions{};
};

/// Nodes in a row, made one by one: nothing is captured, so that no other stream's events are drawn in.
class cuda_graph final : public launch_graph {
 public:
  explicit cuda_graph(const loaded_kernels& kernels) : kernels_(kernels) {}
  ~cuda_graph() override {
    if (ready_ != nullptr) driver().cuGraphExecDestroy_(ready_);
    if (graph_ != nullptr) driver().cuGraphDestroy_(graph_);
  }
  cuda_graph(const cuda_graph&) = delete;
  cuda_graph& operator=(const cuda_graph&) = delete;

  CUresult make(std::span<const launch_view> launches) {
    auto code = driver().cuGraphCreate_(&graph_, 0);
    for (std::size_t i = 0; code == CUDA_SUCCESS && i < launches.size(); ++i) {
      const auto* const before = nodes_.empty() ? nullptr : &nodes_.back();
      CUgraphNode node = nullptr;
      void* all[1];
      const auto params = params_of(launches[i], all);
      code = driver().cuGraphAddKernelNode_(&node, graph_, before, nodes_.empty() ? 0 : 1, &params);
      nodes_.push_back(node);
    }
    return code == CUDA_SUCCESS ? driver().cuGraphInstantiate_(&ready_, graph_, 0) : code;
  }
  void change(std::size_t i, const launch_view& to) override {
    void* all[1];
    const auto params = params_of(to, all);
    must(driver().cuGraphExecKernelNodeSetParams_(ready_, nodes_[i], &params),
         kernel_table[static_cast<std::size_t>(to.which)].symbol);
  }
  CUgraphExec handle() const noexcept { return ready_; }

 private:
  CUDA_KERNEL_NODE_PARAMS params_of(const launch_view& l, void* (&all)[1]) const {
    const auto k = static_cast<std::size_t>(l.which);
    all[0] = const_cast<void*>(l.params);
    CUDA_KERNEL_NODE_PARAMS p{};
    p.func = kernels_.functions[k];
    p.gridDimX = l.blocks.x;
    p.gridDimY = l.blocks.y;
    p.gridDimZ = l.blocks.z;
    p.blockDimX = kernel_table[k].threads;
    p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = all;
    return p;
  }

  const loaded_kernels& kernels_;
  CUgraph graph_ = nullptr;
  CUgraphExec ready_ = nullptr;
  std::vector<CUgraphNode> nodes_;
};

class cuda_stream final : public stream {
 public:
  cuda_stream(CUcontext context, const loaded_kernels& kernels, int priority)
      : context_(context), kernels_(kernels) {
    bind();
    int least = 0, greatest = 0;  // a greater priority is a lower number
    must(driver().cuCtxGetStreamPriorityRange_(&least, &greatest), "priorities");
    must(driver().cuStreamCreateWithPriority_(&stream_, CU_STREAM_NON_BLOCKING,
                                              priority == 0 ? greatest : least),
         "stream");
  }
  ~cuda_stream() override {
    driver().cuCtxSetCurrent_(context_);
    driver().cuStreamSynchronize_(stream_);
    driver().cuStreamDestroy_(stream_);
  }
  cuda_stream(const cuda_stream&) = delete;
  cuda_stream& operator=(const cuda_stream&) = delete;

  void launch(kernel which, grid blocks, const void* params) override {
    bind();
    const auto i = static_cast<std::size_t>(which);
    void* all[] = {const_cast<void*>(params)};
    must(driver().cuLaunchKernel_(kernels_.functions[i], blocks.x, blocks.y, blocks.z,
                                  kernel_table[i].threads, 1, 1, 0, stream_, all, nullptr),
         kernel_table[i].symbol);
  }
  std::unique_ptr<launch_graph> keep(std::span<const launch_view> launches) override {
    if (!driver().graphs) return nullptr;
    bind();
    auto made = std::make_unique<cuda_graph>(kernels_);
    const auto code = made->make(launches);
    if (code == CUDA_ERROR_OUT_OF_MEMORY || code == CUDA_ERROR_NOT_SUPPORTED) return nullptr;
    must(code, "graph");
    return made;
  }
  void launch(launch_graph& graph) override {
    bind();
    must(driver().cuGraphLaunch_(static_cast<cuda_graph&>(graph).handle(), stream_), "graph");
  }
  /// Memory that is not pinned is copied away before the driver returns.
  void write(std::byte* to, const void* from, std::size_t bytes) override { upload(to, from, bytes); }
  void upload(std::byte* to, const void* from, std::size_t bytes) override {
    bind();
    must(driver().cuMemcpyHtoDAsync_(address(to), from, bytes, stream_), "copy to the device");
  }
  void download(void* to, const std::byte* from, std::size_t bytes) override {
    bind();
    must(driver().cuMemcpyDtoHAsync_(to, address(from), bytes, stream_), "copy from the device");
  }
  void load(const kv_copy& c) override {
    CUDA_MEMCPY2D p = shape(c, true);
    p.srcMemoryType = CU_MEMORYTYPE_HOST;
    p.srcHost = c.host;
    p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    p.dstDevice = address(c.device.at);
    copy(p, "load of KV");
  }
  void store(const kv_copy& c) override {
    CUDA_MEMCPY2D p = shape(c, false);
    p.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    p.srcDevice = address(c.device.at);
    p.dstMemoryType = CU_MEMORYTYPE_HOST;
    p.dstHost = c.host;
    copy(p, "store of KV");
  }
  void wait(const event_ptr& e) override {
    if (!e) return;
    const auto* ours = dynamic_cast<const cuda_event*>(e.get());
    if (ours == nullptr) return e->wait();
    bind();
    must(driver().cuStreamWaitEvent_(stream_, ours->handle(), 0), "order of streams");
  }
  event_ptr record() override {
    auto made = std::make_shared<cuda_event>(context_);
    must(driver().cuEventRecord_(made->handle(), stream_), "event");
    return made;
  }
  void synchronize() override {
    bind();
    must(driver().cuStreamSynchronize_(stream_), "the device");
  }

 private:
  void bind() const { must(driver().cuCtxSetCurrent_(context_), "context"); }
  static CUDA_MEMCPY2D shape(const kv_copy& c, bool to_device) {
    CUDA_MEMCPY2D p{};
    p.WidthInBytes = c.piece_bytes;
    p.Height = c.count;
    const auto there = c.count > 1 ? c.pitch_bytes : c.piece_bytes;
    const auto here = c.count > 1 ? c.host_pitch() : c.piece_bytes;
    p.srcPitch = to_device ? here : there;
    p.dstPitch = to_device ? there : here;
    return p;
  }
  void copy(const CUDA_MEMCPY2D& p, const char* what) {
    if (p.WidthInBytes == 0 || p.Height == 0) return;
    bind();
    must(driver().cuMemcpy2DAsync_(&p, stream_), what);
  }

  CUcontext context_;
  const loaded_kernels& kernels_;
  CUstream stream_ = nullptr;
};

class cuda_accelerator final : public accelerator {
 public:
  cuda_accelerator(CUdevice device, CUcontext context, CUmodule module, const loaded_kernels& kernels,
                   accelerator_info info)
      : device_(device), context_(context), module_(module), kernels_(kernels), info_(std::move(info)) {}
  ~cuda_accelerator() override {
    driver().cuCtxSetCurrent_(context_);
    driver().cuModuleUnload_(module_);
    driver().cuDevicePrimaryCtxRelease_(device_);
  }
  cuda_accelerator(const cuda_accelerator&) = delete;
  cuda_accelerator& operator=(const cuda_accelerator&) = delete;

  accelerator_info info() const override { return info_; }
  result<std::byte*> allocate(std::size_t bytes) override {
    CUdeviceptr at = 0;
    auto code = driver().cuCtxSetCurrent_(context_);
    if (code == CUDA_SUCCESS) code = driver().cuMemAlloc_(&at, bytes);
    if (code == CUDA_SUCCESS) return reinterpret_cast<std::byte*>(at);
    return fail(
        code == CUDA_ERROR_OUT_OF_MEMORY ? ec::out_of_space : ec::unavailable,
        std::to_string(bytes) + " bytes on " + info_.name + ": " + driver().name(code) + advice(code));
  }
  void release(std::byte* memory) noexcept override {
    driver().cuCtxSetCurrent_(context_);
    driver().cuMemFree_(address(memory));
  }
  result<std::byte*> pin(std::span<std::byte> memory) override {
    CUdeviceptr at = 0;
    auto code = driver().cuCtxSetCurrent_(context_);
    if (code == CUDA_SUCCESS)
      code = driver().cuMemHostRegister_(memory.data(), memory.size(),
                                         CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    const bool pinned = code == CUDA_SUCCESS;
    if (pinned) code = driver().cuMemHostGetDevicePointer_(&at, memory.data(), 0);
    if (code == CUDA_SUCCESS) return reinterpret_cast<std::byte*>(at);
    if (pinned) driver().cuMemHostUnregister_(memory.data());
    return fail(code == CUDA_ERROR_OUT_OF_MEMORY ? ec::out_of_space : ec::unavailable,
                std::to_string(memory.size()) +
                    " bytes of the host's memory cannot be pinned: " + driver().name(code));
  }
  void unpin(std::byte* memory) noexcept override {
    driver().cuCtxSetCurrent_(context_);
    driver().cuMemHostUnregister_(memory);
  }
  std::unique_ptr<stream> make_stream(int priority) override {
    return std::make_unique<cuda_stream>(context_, kernels_, priority);
  }

 private:
  CUdevice device_;
  CUcontext context_;
  CUmodule module_;
  loaded_kernels kernels_;
  accelerator_info info_;
};

result<accelerator_info> describe(CUdevice device) {
  const auto& d = driver();
  std::array<char, 256> name{};
  int major = 0, minor = 0, processors = 0;
  std::size_t bytes = 0;
  const bool known =
      d.cuDeviceGetName_(name.data(), static_cast<int>(name.size()) - 1, device) == CUDA_SUCCESS &&
      d.cuDeviceGetAttribute_(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) == CUDA_SUCCESS &&
      d.cuDeviceGetAttribute_(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) == CUDA_SUCCESS &&
      d.cuDeviceGetAttribute_(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) ==
          CUDA_SUCCESS &&
      d.cuDeviceTotalMem_(&bytes, device) == CUDA_SUCCESS;
  if (!known) return fail(ec::unavailable, "the GPU does not say what it is");
  return accelerator_info{name.data(), "sm_" + std::to_string(major) + std::to_string(minor), bytes,
                          static_cast<unsigned>(processors)};
}

}  // namespace

/// Every step that the driver refuses is undone and told: a process without a usable GPU must still say why.
result<std::unique_ptr<accelerator>> open_cuda_driver(unsigned ordinal) {
  const auto& d = driver();
  if (!d.missing.empty()) return fail(ec::unsupported, d.missing);
  int count = 0;
  if (d.cuDeviceGetCount_(&count) != CUDA_SUCCESS || count <= 0)
    return fail(ec::not_found, "the CUDA driver shows no GPU; is one visible to this process?");
  if (ordinal >= static_cast<unsigned>(count))
    return fail(ec::not_found, "no GPU " + std::to_string(ordinal) + ": the CUDA driver shows " +
                                   std::to_string(count) + ", counted from 0");
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  const auto refuse = [&](const char* what, CUresult code) {
    if (context != nullptr) d.cuDevicePrimaryCtxRelease_(device);
    return fail(ec::unavailable, "GPU " + std::to_string(ordinal) + ": " + what + ": " + d.name(code));
  };
  if (const auto code = d.cuDeviceGet_(&device, static_cast<int>(ordinal)); code != CUDA_SUCCESS)
    return refuse("cannot be opened", code);
  auto info = describe(device);
  if (!info) return fail(info.error());
  if (const auto code = d.cuDevicePrimaryCtxRetain_(&context, device); code != CUDA_SUCCESS)
    return refuse("cannot be used", code);
  auto code = d.cuCtxSetCurrent_(context);
  if (code == CUDA_SUCCESS) code = d.cuModuleLoadData_(&module, fat_binary());
  if (code != CUDA_SUCCESS)
    return refuse(("kernels for compute capability 8.0 and later cannot be loaded on " + info->isa).c_str(),
                  code);
  loaded_kernels kernels;
  for (std::size_t i = 0; i < kernel_count; ++i) {
    code = d.cuModuleGetFunction_(&kernels.functions[i], module, kernel_table[i].symbol);
    if (code != CUDA_SUCCESS) return refuse(kernel_table[i].symbol, code);
  }
  return std::make_unique<cuda_accelerator>(device, context, module, kernels, std::move(*info));
}

}  // namespace mooncaf::cuda
