// Runs commands from standard input through PyTorch's own CUDA caching allocator and says what it did.
//
//   a ID SIZE STREAM   allocate         f ID          free             u ID STREAM   record a use on another stream
//   d STREAM           work is done     e             empty the cache  m FRACTION    set_per_process_memory_fraction
//
// After each: "ADDRESS ALLOCATED RESERVED" in bytes ("oom" in place of the address). At the end the segments, as
// "segment ADDRESS SIZE STREAM LARGE" and "block SIZE STATE".
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/PeerToPeerAccess.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <string>

namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*func)(DeviceIndex));
}

extern "C" void fake_cuda_complete(uint64_t stream);

int main() {
  namespace alloc = c10::cuda::CUDACachingAllocator;
  c10::cuda::detail::init_p2p_access_cache(1);
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  alloc::init(1);
  std::map<long, void*> blocks;
  char what = 0;
  const auto handle = [](unsigned long stream) { return reinterpret_cast<cudaStream_t>(stream << 12); };
  while (std::cin >> what) {
    long id = 0;
    unsigned long size = 0, stream = 0;
    unsigned long at = 0;
    bool failed = false;
    if (what == 'a') {
      std::cin >> id >> size >> stream;
      try {
        blocks[id] = alloc::raw_alloc_with_stream(size, handle(stream));
        at = reinterpret_cast<unsigned long>(blocks[id]);
      } catch (const c10::OutOfMemoryError&) {
        failed = true;
      }
    } else if (what == 'f') {
      std::cin >> id;
      if (blocks.count(id)) alloc::raw_delete(blocks[id]);
      blocks.erase(id);
    } else if (what == 'u') {
      std::cin >> id >> stream;
      if (blocks.count(id)) {
        c10::DataPtr data(blocks[id], blocks[id], alloc::get()->raw_deleter(), c10::Device(c10::kCUDA, 0));
        alloc::recordStream(data, c10::cuda::getStreamFromExternal(handle(stream), 0));
        data.release_context();
      }
    } else if (what == 'd') {
      std::cin >> stream;
      fake_cuda_complete(stream << 12);
    } else if (what == 'e') {
      alloc::emptyCache();
    } else if (what == 'm') {
      double fraction = 1;
      std::cin >> fraction;
      alloc::setMemoryFraction(fraction, 0);
    }
    const auto stats = alloc::getDeviceStats(0);
    if (failed)
      std::printf("oom");
    else
      std::printf("%lu", at);
    std::printf(" %ld %ld\n", (long)stats.allocated_bytes[0].current, (long)stats.reserved_bytes[0].current);
  }
  const auto stats = alloc::getDeviceStats(0);
  std::printf("peak %ld %ld retries %ld ooms %ld\n", (long)stats.allocated_bytes[0].peak,
              (long)stats.reserved_bytes[0].peak, (long)stats.num_alloc_retries, (long)stats.num_ooms);
  for (const auto& segment : alloc::snapshot().segments) {
    std::printf("segment %lu %lu %lu %d\n", (unsigned long)segment.address, (unsigned long)segment.total_size,
                reinterpret_cast<unsigned long>(segment.stream) >> 12, (int)segment.is_large);
    for (const auto& block : segment.blocks)
      std::printf("block %lu %s\n", (unsigned long)block.size,
                  block.allocated ? "allocated" : block.active ? "waiting" : "free");
  }
  return 0;
}
