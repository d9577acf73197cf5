// Only the CUDA toolkit is included here, and no header of torch: this file compiles in seconds for every
// architecture, on machines without a GPU too.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "grayscale_cuda.h"
#include "luma.h"

namespace grayscale {

// The types that are computed in: float for those of 16 bits, which are rounded once.
__device__ inline uint8_t widen(uint8_t value) { return value; }
__device__ inline float widen(__half value) { return __half2float(value); }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float widen(float value) { return value; }
__device__ inline double widen(double value) { return value; }

__device__ inline void narrow(uint8_t value, uint8_t& result) { result = value; }
__device__ inline void narrow(float value, __half& result) { result = __float2half_rn(value); }
__device__ inline void narrow(float value, __nv_bfloat16& result) { result = __float2bfloat16_rn(value); }
__device__ inline void narrow(float value, float& result) { result = value; }
__device__ inline void narrow(double value, double& result) { result = value; }

namespace {

// Moving the bytes is all that takes time, so each thread moves one packet of results, the widest access
// there is, or a single pixel of those around the packets. On an H200 that is 1.08 to 1.10 times the rate of
// a copy, which has less to read. More packets a thread are slower by up to 5%, larger blocks start later,
// and loads that are marked as read once (__ldcs) are 5% slower in caches that others have filled.
constexpr int kThreads = 128;
using Packet = uint4;

template <typename T>
constexpr int kPixels = sizeof(Packet) / sizeof(T);

enum class Layout {
  kPlanar,       // neighbours follow each other in each channel: contiguous images
  kInterleaved,  // RGBRGB…: channels-last images
  kStrided,      // everything else
};

// What is known of the rows before a kernel starts, which then need not find it out.
enum class Rows {
  kAny,
  kAligned,    // each begins where a packet can, in every plane
  kOnePacked,  // there is one, aligned, and it is all packets: most dense images
};

__host__ __device__ bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % sizeof(Packet) == 0;
}

// Reads `kCount` packets of T from any address that T may have. Where they do not lie as packets do in
// memory, it reads the packets that they lie across, one more, and shifts: reads up to the end of that one.
template <int kCount, bool kIsAligned, typename T>
__device__ void load(const T* from, Packet* packets) {
  const unsigned misplaced = kIsAligned ? 0 : reinterpret_cast<uintptr_t>(from) % sizeof(Packet);
  if (misplaced == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      packets[i] = reinterpret_cast<const Packet*>(from)[i];
    }
    return;
  }
  const Packet* source = reinterpret_cast<const Packet*>(reinterpret_cast<const char*>(from) - misplaced);
  uint32_t words[4 * kCount + 4];
#pragma unroll
  for (int i = 0; i <= kCount; ++i) {
    // The neighbour reads it as well: it should stay in the cache.
    const Packet packet = __ldg(source + i);
    words[4 * i] = packet.x;
    words[4 * i + 1] = packet.y;
    words[4 * i + 2] = packet.z;
    words[4 * i + 3] = packet.w;
  }
  // In steps of powers of two, so that all indices are constants and all words in registers.
#pragma unroll
  for (int i = 0; i < 4 * kCount + 2; ++i) {
    words[i] = misplaced & 8 ? words[i + 2] : words[i];
  }
#pragma unroll
  for (int i = 0; i < 4 * kCount + 1; ++i) {
    words[i] = misplaced & 4 ? words[i + 1] : words[i];
  }
#pragma unroll
  for (int i = 0; i < 4 * kCount; ++i) {
    // By the address modulo 4, which is 0 for types of 4 bytes.
    words[i] = sizeof(T) < 4 ? __funnelshift_r(words[i], words[i + 1], 8 * (misplaced & 3)) : words[i];
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    packets[i] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
  }
}

// How threads part a row: into whole packets of the target from its first aligned address on, and the single
// pixels before and behind them.
template <typename T, typename Index>
struct Parts {
  Index head;
  Index packets;

  // All of it is aligned.
  __device__ explicit Parts(Index width) : head(0), packets(width / kPixels<T>) {}

  // A source that is_shifted is read beyond its packet: the last one is left out, to stay within the row.
  __device__ Parts(const T* target, bool is_shifted, Index width) {
    const Index ahead = -reinterpret_cast<uintptr_t>(target) % sizeof(Packet) / sizeof(T);
    head = ahead < width ? ahead : width;
    packets = (width - head) / kPixels<T>;
    packets -= is_shifted && packets > 0;
  }

  // Where a part begins: packets come first.
  __device__ Index pixel(Index part) const {
    if (part < packets) {
      return head + part * kPixels<T>;
    }
    const Index single = part - packets;
    return single < head ? single : single + packets * kPixels<T>;
  }
};

// The most parts that a row can come to.
template <typename T>
int64_t most_parts(bool is_aligned, int64_t width) {
  constexpr int64_t kSize = kPixels<T>;
  return width / kSize + (is_aligned ? width % kSize : std::min(width, 3 * kSize - 2));
}

template <typename T, Layout kLayout, Rows kRows, typename Index>
__global__ void __launch_bounds__(kThreads)
    convert_kernel(const T* __restrict__ image, T* __restrict__ gray, Index parts_per_row, Index parts,
                   const __grid_constant__ Geometry geometry) {
  constexpr int kSize = kPixels<T>;
  constexpr bool kIsPlanar = kLayout == Layout::kPlanar;
  constexpr bool kIsAligned = kRows != Rows::kAny;
  const Index index = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= parts) {
    return;
  }
  const Index row = kRows == Rows::kOnePacked || geometry.dims == 1 ? 0 : index / parts_per_row;
  const Index part = index - row * parts_per_row;
  const Index width = static_cast<Index>(geometry.width());
  const int64_t channel_stride = geometry.channel_stride;
  const Offsets offsets = kRows == Rows::kOnePacked ? Offsets() : row_offsets(geometry, row);
  const T* source = image + offsets.image;
  T* target = gray + offsets.gray;
  Index pixel = part;

  if constexpr (kLayout != Layout::kStrided) {
    constexpr int64_t kStride = kIsPlanar ? 1 : 3;
    Parts<T, Index> row_parts(width);
    if constexpr (!kIsAligned) {
      const T* first = source + kStride * Parts<T, Index>(target, false, width).head;
      const bool is_shifted =
          !is_aligned(first) ||
          (kIsPlanar && (!is_aligned(first + channel_stride) || !is_aligned(first + 2 * channel_stride)));
      row_parts = Parts<T, Index>(target, is_shifted, width);
    }
    pixel = row_parts.pixel(part);
    if (kRows == Rows::kOnePacked || part < row_parts.packets) {
      Packet packets[3];
      if constexpr (kIsPlanar) {
        load<1, kIsAligned>(source + pixel, packets);
        load<1, kIsAligned>(source + pixel + channel_stride, packets + 1);
        load<1, kIsAligned>(source + pixel + 2 * channel_stride, packets + 2);
      } else {
        load<3, kIsAligned>(source + kStride * pixel, packets);
      }
      const T* values = reinterpret_cast<const T*>(packets);
      Packet result;
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        const int red = kIsPlanar ? i : 3 * i;
        const int next = kIsPlanar ? kSize : 1;
        narrow(luma(widen(values[red]), widen(values[red + next]), widen(values[red + 2 * next])),
               reinterpret_cast<T*>(&result)[i]);
      }
      *reinterpret_cast<Packet*>(target + pixel) = result;
      return;
    }
  }
  if (pixel < width) {
    source += pixel * geometry.dim[0].image_stride;
    narrow(luma(widen(source[0]), widen(source[channel_stride]), widen(source[2 * channel_stride])),
           target[pixel * geometry.dim[0].gray_stride]);
  }
}

// The way back. Planar: a part is a packet in each of the planes, which need not be aligned alike.
// Interleaved: a part is one packet of the target, and what it holds of up to six pixels, since stores of a
// warp that leave gaps between the packets take twice the time.
template <typename T, Layout kLayout, Rows kRows, typename Index>
__global__ void __launch_bounds__(kThreads)
    spread_kernel(const T* __restrict__ gradient, T* __restrict__ image, Index parts_per_row, Index parts,
                  const __grid_constant__ Geometry geometry) {
  constexpr int kSize = kPixels<T>;
  constexpr bool kIsAligned = kRows != Rows::kAny;
  const Index index = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= parts) {
    return;
  }
  const Index row = kRows == Rows::kOnePacked || geometry.dims == 1 ? 0 : index / parts_per_row;
  const Index part = index - row * parts_per_row;
  const Index width = static_cast<Index>(geometry.width());
  const int64_t gray_stride = geometry.dim[0].gray_stride;
  const Offsets offsets = kRows == Rows::kOnePacked ? Offsets() : row_offsets(geometry, row);
  const T* source = gradient + offsets.gray;
  T* target = image + offsets.image;
  using Wide = decltype(widen(T()));

  if constexpr (kLayout == Layout::kInterleaved) {
    const Index packets = 3 * width / kSize;
    const Index element = part < packets ? part * kSize : part + packets * (kSize - 1);
    const Index pixel = element / 3;
    const int channel = static_cast<int>(element - 3 * pixel);
    source += pixel * gray_stride;
    if (kRows == Rows::kOnePacked || part < packets) {
      // The pixels that the packet has parts of, and the weights in the order of its elements.
      constexpr int kWindow = (kSize + 1) / 3 + 1;
      Wide window[kWindow];
#pragma unroll
      for (int i = 0; i < kWindow; ++i) {
        window[i] = i <= (channel + kSize - 1) / 3 ? widen(source[i * gray_stride]) : Wide(0);
      }
      Wide weights[3];
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        weights[i] = weight<Wide>((channel + i) % 3);
      }
      Packet result;
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        const bool is_next = channel + i % 3 >= 3;
        narrow(weights[i % 3] * (is_next ? window[i / 3 + 1] : window[i / 3]),
               reinterpret_cast<T*>(&result)[i]);
      }
      *reinterpret_cast<Packet*>(target + element) = result;
    } else if (pixel < width) {
      narrow(weight<Wide>(channel) * widen(*source), target[element]);
    }
  } else {
#pragma unroll
    for (int channel = 0; channel < 3; ++channel) {
      const auto channel_weight = weight<Wide>(channel);
      Index pixel = part;
      if constexpr (kLayout == Layout::kPlanar) {
        // A gradient may be the same everywhere, as that of a sum is.
        const bool is_constant = gray_stride == 0;
        Parts<T, Index> row_parts(width);
        if constexpr (!kIsAligned) {
          const T* first = source + Parts<T, Index>(target, false, width).head;
          row_parts = Parts<T, Index>(target, !is_constant && !is_aligned(first), width);
        }
        pixel = row_parts.pixel(part);
        if (kRows == Rows::kOnePacked || part < row_parts.packets) {
          Packet packet;
          if (is_constant) {
#pragma unroll
            for (int i = 0; i < kSize; ++i) {
              reinterpret_cast<T*>(&packet)[i] = *source;
            }
          } else {
            load<1, kIsAligned>(source + pixel, &packet);
          }
          Packet result;
#pragma unroll
          for (int i = 0; i < kSize; ++i) {
            narrow(channel_weight * widen(reinterpret_cast<const T*>(&packet)[i]),
                   reinterpret_cast<T*>(&result)[i]);
          }
          *reinterpret_cast<Packet*>(target + pixel) = result;
          target += geometry.channel_stride;
          continue;
        }
      }
      if (pixel < width) {
        narrow(channel_weight * widen(source[pixel * gray_stride]),
               target[pixel * geometry.dim[0].image_stride]);
      }
      target += geometry.channel_stride;
    }
  }
}

// Whether all rows begin where a packet can.
template <typename T>
bool rows_are_aligned(const T* pointer, int64_t Geometry::Dim::* stride, const Geometry& geometry) {
  bool aligned = is_aligned(pointer);
  for (int i = 1; i < geometry.dims; ++i) {
    aligned = aligned && geometry.dim[i].*stride % kPixels<T> == 0;
  }
  return aligned;
}

// Whether there is one row, and all of its elements are in packets.
template <typename T>
bool is_packed(const Geometry& geometry, int64_t elements) {
  return geometry.dims == 1 && elements % kPixels<T> == 0;
}

template <typename T, typename Kernel, typename WideKernel>
cudaError_t launch(Kernel kernel, WideKernel wide_kernel, const T* source, T* target,
                   const Geometry& geometry, int64_t parts_per_row, cudaStream_t stream) {
  const int64_t parts = parts_per_row * geometry.rows();
  const unsigned blocks = static_cast<unsigned>((parts + kThreads - 1) / kThreads);
  // Indices of 32 bits are much faster to divide. They count parts, and a row's elements.
  if (std::max(parts, 3 * geometry.width()) <= std::numeric_limits<int32_t>::max()) {
    kernel<<<blocks, kThreads, 0, stream>>>(source, target, static_cast<uint32_t>(parts_per_row),
                                            static_cast<uint32_t>(parts), geometry);
  } else {
    wide_kernel<<<blocks, kThreads, 0, stream>>>(source, target, static_cast<uint64_t>(parts_per_row),
                                                 static_cast<uint64_t>(parts), geometry);
  }
  return cudaGetLastError();
}

template <typename T, Layout kLayout, Rows kRows = Rows::kAny>
cudaError_t convert(const T* image, T* gray, const Geometry& geometry, int64_t parts_per_row,
                    cudaStream_t stream) {
  return launch(convert_kernel<T, kLayout, kRows, uint32_t>, convert_kernel<T, kLayout, Rows::kAny, uint64_t>,
                image, gray, geometry, parts_per_row, stream);
}

template <typename T>
cudaError_t convert(const void* image_data, void* gray_data, const Geometry& geometry, cudaStream_t stream) {
  const T* image = static_cast<const T*>(image_data);
  T* gray = static_cast<T*>(gray_data);
  const Geometry::Dim& inner = geometry.dim[0];
  const bool is_planar = inner.image_stride == 1;
  const bool is_interleaved = inner.image_stride == 3 && geometry.channel_stride == 1;
  const bool aligned = rows_are_aligned(gray, &Geometry::Dim::gray_stride, geometry) &&
                       rows_are_aligned(image, &Geometry::Dim::image_stride, geometry) &&
                       (is_interleaved || geometry.channel_stride % kPixels<T> == 0);
  const int64_t parts_per_row = most_parts<T>(aligned, inner.size);
  const bool packed = aligned && is_packed<T>(geometry, inner.size);
  if (inner.gray_stride == 1 && is_planar && packed) {
    return convert<T, Layout::kPlanar, Rows::kOnePacked>(image, gray, geometry, parts_per_row, stream);
  }
  if (inner.gray_stride == 1 && is_planar && aligned) {
    return convert<T, Layout::kPlanar, Rows::kAligned>(image, gray, geometry, parts_per_row, stream);
  }
  // Packets of two pixels, which would be read twice, are no better than the pixels.
  if (inner.gray_stride == 1 && is_planar && sizeof(T) < 8) {
    return convert<T, Layout::kPlanar>(image, gray, geometry, parts_per_row, stream);
  }
  if (inner.gray_stride == 1 && is_interleaved && packed) {
    return convert<T, Layout::kInterleaved, Rows::kOnePacked>(image, gray, geometry, parts_per_row, stream);
  }
  if (inner.gray_stride == 1 && is_interleaved) {
    return aligned ? convert<T, Layout::kInterleaved, Rows::kAligned>(image, gray, geometry, parts_per_row,
                                                                      stream)
                   : convert<T, Layout::kInterleaved>(image, gray, geometry, parts_per_row, stream);
  }
  return convert<T, Layout::kStrided>(image, gray, geometry, inner.size, stream);
}

template <typename T, Layout kLayout, Rows kRows = Rows::kAny>
cudaError_t spread(const T* gradient, T* image, const Geometry& geometry, int64_t parts_per_row,
                   cudaStream_t stream) {
  return launch(spread_kernel<T, kLayout, kRows, uint32_t>, spread_kernel<T, kLayout, Rows::kAny, uint64_t>,
                gradient, image, geometry, parts_per_row, stream);
}

template <typename T>
cudaError_t spread(const void* gradient_data, void* image_data, const Geometry& geometry,
                   cudaStream_t stream) {
  const T* gradient = static_cast<const T*>(gradient_data);
  T* image = static_cast<T*>(image_data);
  const Geometry::Dim& inner = geometry.dim[0];
  const bool image_is_aligned = rows_are_aligned(image, &Geometry::Dim::image_stride, geometry);
  if (inner.image_stride == 3 && geometry.channel_stride == 1 && image_is_aligned) {
    const int64_t parts_per_row = most_parts<T>(true, 3 * inner.size);
    if (is_packed<T>(geometry, 3 * inner.size)) {
      return spread<T, Layout::kInterleaved, Rows::kOnePacked>(gradient, image, geometry, parts_per_row,
                                                               stream);
    }
    return spread<T, Layout::kInterleaved>(gradient, image, geometry, parts_per_row, stream);
  }
  if (inner.image_stride == 1 && (inner.gray_stride == 0 || inner.gray_stride == 1)) {
    const bool aligned =
        image_is_aligned && geometry.channel_stride % kPixels<T> == 0 &&
        (inner.gray_stride == 0 || rows_are_aligned(gradient, &Geometry::Dim::gray_stride, geometry));
    const int64_t parts_per_row = most_parts<T>(aligned, inner.size);
    if (aligned && is_packed<T>(geometry, inner.size)) {
      return spread<T, Layout::kPlanar, Rows::kOnePacked>(gradient, image, geometry, parts_per_row, stream);
    }
    if (aligned) {
      return spread<T, Layout::kPlanar, Rows::kAligned>(gradient, image, geometry, parts_per_row, stream);
    }
    if (sizeof(T) < 8) {
      return spread<T, Layout::kPlanar>(gradient, image, geometry, parts_per_row, stream);
    }
  }
  return spread<T, Layout::kStrided>(gradient, image, geometry, inner.size, stream);
}

}  // namespace

cudaError_t convert_on_cuda(Type type, const void* image, void* gray, const Geometry& geometry,
                            cudaStream_t stream) {
  switch (type) {
    case Type::kUint8:
      return convert<uint8_t>(image, gray, geometry, stream);
    case Type::kHalf:
      return convert<__half>(image, gray, geometry, stream);
    case Type::kBfloat16:
      return convert<__nv_bfloat16>(image, gray, geometry, stream);
    case Type::kFloat:
      return convert<float>(image, gray, geometry, stream);
    case Type::kDouble:
      return convert<double>(image, gray, geometry, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t spread_on_cuda(Type type, const void* gradient, void* image_gradient, const Geometry& geometry,
                           cudaStream_t stream) {
  switch (type) {
    case Type::kHalf:
      return spread<__half>(gradient, image_gradient, geometry, stream);
    case Type::kBfloat16:
      return spread<__nv_bfloat16>(gradient, image_gradient, geometry, stream);
    case Type::kFloat:
      return spread<float>(gradient, image_gradient, geometry, stream);
    case Type::kDouble:
      return spread<double>(gradient, image_gradient, geometry, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace grayscale
