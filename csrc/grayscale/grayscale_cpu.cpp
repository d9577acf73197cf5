#include "grayscale_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "luma.h"

namespace grayscale {
namespace {

// Pixels that are worth waking a thread for: some ten microseconds of work.
constexpr int64_t kGrain = 32768;

// Strides are compile-time constants in the common cases, so that the compiler can vectorise the loop.
template <typename T>
void convert_run(const T* __restrict red, const T* __restrict green, const T* __restrict blue,
                 int64_t image_stride, T* __restrict gray, int64_t gray_stride, int64_t pixels) {
  for (int64_t i = 0; i < pixels; ++i) {
    const int64_t source = i * image_stride;
    gray[i * gray_stride] = luma(red[source], green[source], blue[source]);
  }
}

template <typename T>
void convert(const T* image, T* gray, const Geometry& geometry) {
  const int64_t row_size = geometry.sizes[0];
  const int64_t image_stride = geometry.image_strides[0];
  const int64_t gray_stride = geometry.gray_strides[0];
  const int64_t channel_stride = geometry.channel_stride;

  // Threads share the pixels and not the rows: there may be a single row, or very short ones.
  at::parallel_for(0, geometry.rows() * row_size, kGrain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t row = begin / row_size;
      const int64_t column = begin - row * row_size;
      const int64_t pixels = std::min(row_size - column, end - begin);
      const Offsets offsets = row_offsets(geometry, row);
      const T* red = image + offsets.image + column * image_stride;
      const T* green = red + channel_stride;
      const T* blue = green + channel_stride;
      T* target = gray + offsets.gray + column * gray_stride;
      if (image_stride == 1 && gray_stride == 1) {
        convert_run(red, green, blue, 1, target, 1, pixels);
      } else if (image_stride == 3 && channel_stride == 1 && gray_stride == 1) {
        convert_run(red, red + 1, red + 2, 3, target, 1, pixels);
      } else {
        convert_run(red, green, blue, image_stride, target, gray_stride, pixels);
      }
      begin += pixels;
    }
  });
}

}  // namespace

void convert_on_cpu(const uint8_t* image, uint8_t* gray, const Geometry& geometry) {
  convert(image, gray, geometry);
}
void convert_on_cpu(const float* image, float* gray, const Geometry& geometry) {
  convert(image, gray, geometry);
}

}  // namespace grayscale
