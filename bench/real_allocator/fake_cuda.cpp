// A CUDA runtime and driver without a GPU: addresses are counted up, memory is a number, work is done when told.
//
// Built as libcudart.so.13, it lets PyTorch's own libc10_cuda.so run its caching allocator on any machine
// (bench/real_allocator.py). Addresses are never given out twice and are multiples of 2 MiB, as cudaMalloc's of large
// sizes are. Capacity in bytes: FAKE_CUDA_CAPACITY.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>

namespace {
constexpr uint64_t kPage = 2ull << 20;
uint64_t next_address = 0x700000000000ull;
uint64_t used = 0;
std::map<uint64_t, uint64_t> segments;
std::map<uint64_t, uint64_t> handles;
uint64_t next_handle = 1;
std::map<uint64_t, uint64_t> event_stamp;  // event -> number of its record
std::map<uint64_t, uint64_t> event_stream;
std::map<uint64_t, uint64_t> stream_done;  // stream -> all records up to here are complete
uint64_t stamp = 0;
uint64_t next_event = 1;

uint64_t capacity() {
  static const uint64_t found = std::strtoull(std::getenv("FAKE_CUDA_CAPACITY"), nullptr, 10);
  return found;
}

uint64_t reserve(uint64_t size) {
  const uint64_t at = next_address;
  next_address += (size + kPage - 1) / kPage * kPage;
  return at;
}

bool done(uint64_t event) {
  return event_stamp[event] <= stream_done[event_stream[event]];
}
}  // namespace

extern "C" {
// For the driver program: everything that was asked of a stream so far is done.
void fake_cuda_complete(uint64_t stream) { stream_done[stream] = stamp; }

cudaError_t cudaMalloc(void** out, size_t size) {
  if (used + size > capacity()) return cudaErrorMemoryAllocation;
  used += size;
  const uint64_t at = reserve(size);
  segments[at] = size;
  *out = reinterpret_cast<void*>(at);
  return cudaSuccess;
}
cudaError_t cudaFree(void* at) {
  auto found = segments.find(reinterpret_cast<uint64_t>(at));
  if (found != segments.end()) {
    used -= found->second;
    segments.erase(found);
  }
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *total = capacity();
  *free_bytes = capacity() - used;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int) {
  std::memset(prop, 0, sizeof(*prop));
  prop->totalGlobalMem = capacity();
  prop->major = 9;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(next_event++);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event_stamp[reinterpret_cast<uint64_t>(event)] = ++stamp;
  event_stream[reinterpret_cast<uint64_t>(event)] = reinterpret_cast<uint64_t>(stream);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return done(reinterpret_cast<uint64_t>(event)) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  stream_done[event_stream[reinterpret_cast<uint64_t>(event)]] = stamp;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "error"; }
const char* cudaGetErrorName(cudaError_t) { return "error"; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* low, int* high) {
  *low = *high = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = reinterpret_cast<cudaStream_t>(0x900000 + 16 * next_event++);
  return cudaSuccess;
}
}

// Functions that the allocator's native backend never calls, under their names.
extern "C" {
cudaError_t cudaDeviceCanAccessPeer(int*, int, int) { return cudaErrorNotSupported; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaErrorNotSupported; }
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int) { return cudaErrorNotSupported; }
cudaError_t cudaFreeAsync(void*, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaMallocAsync(void**, size_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaIpcCloseMemHandle(void*) { return cudaErrorNotSupported; }
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return cudaErrorNotSupported; }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) { return cudaErrorNotSupported; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaErrorNotSupported; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaErrorNotSupported; }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return cudaErrorNotSupported; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaErrorNotSupported; }
cudaError_t cudaMemcpy(void*, const void*, size_t, cudaMemcpyKind) { return cudaErrorNotSupported; }
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaMemcpyPeerAsync(void*, int, const void*, int, size_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, size_t*) {
  return cudaErrorNotSupported;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long*, cudaGraph_t*,
                                     const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
}

// -- the driver's virtual memory, for expandable segments --------------------------------------------------------------
namespace {
CUresult get_error_string(CUresult, const char** text) {
  *text = "driver error";
  return CUDA_SUCCESS;
}
CUresult mem_address_reserve(CUdeviceptr* at, size_t size, size_t, CUdeviceptr, unsigned long long) {
  *at = reserve(size);
  return CUDA_SUCCESS;
}
CUresult mem_create(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp*, unsigned long long) {
  if (used + size > capacity()) return CUDA_ERROR_OUT_OF_MEMORY;
  used += size;
  *handle = next_handle++;
  handles[*handle] = size;
  return CUDA_SUCCESS;
}
CUresult mem_release(CUmemGenericAllocationHandle handle) {
  used -= handles[handle];
  handles.erase(handle);
  return CUDA_SUCCESS;
}
CUresult succeed() { return CUDA_SUCCESS; }
CUresult device_get(CUdevice* device, int) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult device_attribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 0;
  return CUDA_SUCCESS;
}
}  // namespace

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** out, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* status) {
  static const std::map<std::string, void*> known = {
      {"cuGetErrorString", (void*)get_error_string},
      {"cuMemAddressReserve", (void*)mem_address_reserve},
      {"cuMemCreate", (void*)mem_create},
      {"cuMemRelease", (void*)mem_release},
      {"cuDeviceGet", (void*)device_get},
      {"cuDeviceGetAttribute", (void*)device_attribute}};
  const auto found = known.find(symbol);
  *out = found == known.end() ? (void*)succeed : found->second;
  if (status) *status = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
