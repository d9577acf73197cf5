// Only the CUDA runtime is included here, and no header of torch: this file compiles in seconds for every
// architecture, on machines without a GPU too.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "grayscale_cuda.h"
#include "luma.h"

namespace grayscale {
namespace {

constexpr int kThreads = 256;
// The kernel strides over what is beyond the grid. Small enough for a 32-bit index not to wrap in its last
// step.
constexpr int64_t kMaxBlocks = int64_t{1} << 20;

// The conversion is bound by memory, so that all that matters is to move 16 bytes at a time, the widest
// access.
using Packet = uint4;

template <typename T>
constexpr int kPacketSize = sizeof(Packet) / sizeof(T);

enum class Layout {
  kPlanar,       // three packets, one of each channel: contiguous images
  kInterleaved,  // three packets in a row, which hold RGBRGB…: channels-last images
  kStrided,      // one pixel at a time: everything else
};

template <typename T, Layout kLayout>
constexpr int kPixels = kLayout == Layout::kStrided ? 1 : kPacketSize<T>;

// One thread converts `kPixels` neighbours of a row, a group, at a time.
template <typename T, Layout kLayout, typename Index>
__global__ void __launch_bounds__(kThreads)
    convert_kernel(const T* __restrict__ image, T* __restrict__ gray,
                   const __grid_constant__ Geometry geometry, Index groups_per_row, Index groups) {
  constexpr int kGroup = kPixels<T, kLayout>;
  const int64_t channel_stride = geometry.channel_stride;
  const Index step = static_cast<Index>(gridDim.x) * kThreads;

  for (Index group = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x; group < groups; group += step) {
    const Index row = group / groups_per_row;
    const int64_t column = static_cast<int64_t>(group - row * groups_per_row) * kGroup;
    const Offsets offsets = row_offsets(geometry, row);
    const T* source = image + offsets.image + column * geometry.image_strides[0];
    T* target = gray + offsets.gray + column * geometry.gray_strides[0];

    if constexpr (kLayout != Layout::kStrided) {
      if (column + kGroup <= geometry.sizes[0]) {
        alignas(Packet) T channels[3 * kGroup];
        alignas(Packet) T result[kGroup];
        constexpr bool kIsPlanar = kLayout == Layout::kPlanar;
#pragma unroll
        for (int i = 0; i < 3; ++i) {
          reinterpret_cast<Packet*>(channels)[i] =
              *reinterpret_cast<const Packet*>(source + i * (kIsPlanar ? channel_stride : kGroup));
        }
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          const int red = kIsPlanar ? i : 3 * i;
          const int next = kIsPlanar ? kGroup : 1;
          result[i] = luma(channels[red], channels[red + next], channels[red + 2 * next]);
        }
        *reinterpret_cast<Packet*>(target) = *reinterpret_cast<const Packet*>(result);
        continue;
      }
    }
    // A single pixel, or the end of a row that is no whole number of packets.
    const int64_t rest = geometry.sizes[0] - column;
    for (int i = 0; i < kGroup && i < rest; ++i) {
      *target = luma(source[0], source[channel_stride], source[2 * channel_stride]);
      source += geometry.image_strides[0];
      target += geometry.gray_strides[0];
    }
  }
}

template <typename T>
bool is_aligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % sizeof(Packet) == 0;
}

template <typename T>
Layout find_layout(const T* image, const T* gray, const Geometry& geometry) {
  bool aligned = is_aligned(image) && is_aligned(gray);
  for (int dim = 1; dim < geometry.dims; ++dim) {
    aligned = aligned && geometry.image_strides[dim] % kPacketSize<T> == 0 &&
              geometry.gray_strides[dim] % kPacketSize<T> == 0;
  }
  if (aligned && geometry.gray_strides[0] == 1) {
    if (geometry.image_strides[0] == 1 && geometry.channel_stride % kPacketSize<T> == 0) {
      return Layout::kPlanar;
    }
    if (geometry.image_strides[0] == 3 && geometry.channel_stride == 1) {
      return Layout::kInterleaved;
    }
  }
  return Layout::kStrided;
}

template <typename T, Layout kLayout>
cudaError_t launch(const T* image, T* gray, const Geometry& geometry, cudaStream_t stream) {
  constexpr int kGroup = kPixels<T, kLayout>;
  const int64_t groups_per_row = (geometry.sizes[0] + kGroup - 1) / kGroup;
  const int64_t groups = groups_per_row * geometry.rows();
  const unsigned blocks = static_cast<unsigned>(std::min((groups + kThreads - 1) / kThreads, kMaxBlocks));
  if (groups <= std::numeric_limits<int32_t>::max()) {
    convert_kernel<T, kLayout, uint32_t><<<blocks, kThreads, 0, stream>>>(
        image, gray, geometry, static_cast<uint32_t>(groups_per_row), static_cast<uint32_t>(groups));
  } else {
    convert_kernel<T, kLayout, uint64_t><<<blocks, kThreads, 0, stream>>>(
        image, gray, geometry, static_cast<uint64_t>(groups_per_row), static_cast<uint64_t>(groups));
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t convert(const T* image, T* gray, const Geometry& geometry, cudaStream_t stream) {
  switch (find_layout(image, gray, geometry)) {
    case Layout::kPlanar:
      return launch<T, Layout::kPlanar>(image, gray, geometry, stream);
    case Layout::kInterleaved:
      return launch<T, Layout::kInterleaved>(image, gray, geometry, stream);
    default:
      return launch<T, Layout::kStrided>(image, gray, geometry, stream);
  }
}

}  // namespace

cudaError_t convert_on_cuda(const uint8_t* image, uint8_t* gray, const Geometry& geometry,
                            cudaStream_t stream) {
  return convert(image, gray, geometry, stream);
}

cudaError_t convert_on_cuda(const float* image, float* gray, const Geometry& geometry, cudaStream_t stream) {
  return convert(image, gray, geometry, stream);
}

}  // namespace grayscale
