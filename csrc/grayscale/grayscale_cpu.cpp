#include "grayscale_cpu.h"

#include <ATen/Version.h>
#include <c10/util/Exception.h>
#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "half.h"
#include "luma.h"

#if defined(__x86_64__)
#include "half_x86.h"
#include "interleaved_x86.h"
#endif

// The binary is for any processor of its kind, and has the same loops compiled for each of the vector units
// that it may find there: they become a part of functions for these. Arm's unit is part of every such
// processor, and has instructions for interleaved pixels, which compilers know.
#define GRAYSCALE_ALWAYS_INLINE __attribute__((always_inline))
#define GRAYSCALE_LOOP inline GRAYSCALE_ALWAYS_INLINE

namespace grayscale {
namespace {

// Pixels that are worth waking a thread for: some ten microseconds of work.
constexpr int64_t kGrain = 32768;

// Results of so many bytes are written past the caches, which saves reading the memory first. Smaller ones
// may still be there for whoever reads them next.
constexpr int64_t kStreamedBytes = 4 << 20;

// Part of a row, and how its neighbours follow each other.
template <typename T>
struct Run {
  const T* source;
  T* target;
  int64_t image_stride;
  int64_t channel_stride;
  int64_t gray_stride;
  int64_t pixels;
  bool is_streamed;

  bool is_planar() const { return image_stride == 1 && gray_stride == 1; }
  bool is_interleaved() const { return image_stride == 3 && channel_stride == 1 && gray_stride == 1; }
};

template <typename T>
GRAYSCALE_LOOP void convert_pixels(const T* __restrict red, const T* __restrict green,
                                   const T* __restrict blue, int64_t image_stride, T* __restrict gray,
                                   int64_t gray_stride, int64_t pixels) {
  for (int64_t i = 0; i < pixels; ++i) {
    const int64_t at = i * image_stride;
    if constexpr (sizeof(T) == 2) {
      gray[i * gray_stride] = static_cast<T>(
          luma(static_cast<float>(red[at]), static_cast<float>(green[at]), static_cast<float>(blue[at])));
    } else {
      gray[i * gray_stride] = luma(red[at], green[at], blue[at]);
    }
  }
}

#if defined(__x86_64__)

// Converts most of a long row, and gives how much of it. A piece is computed in the cache, and written to the
// memory by whole lines. The pieces come from `kSegments` places in turn, since a processor reads ahead in
// each of them: from one alone, it gets interleaved floats at three quarters of the speed.
template <typename T, int64_t kSegments, typename Convert>
GRAYSCALE_LOOP int64_t stream(T* gray, int64_t pixels, const Convert& convert) {
  constexpr int64_t kLine = 64 / sizeof(T);
  constexpr int64_t kPiece = 4 * kLine;
  constexpr int64_t kSegment = 16 * kPiece;
  alignas(64) T piece[kPiece];
  const int64_t head = -reinterpret_cast<uintptr_t>(gray) % 64 / sizeof(T);
  int64_t done = std::min(head, pixels);
  convert(0, gray, done);
  for (; done + kSegments * kSegment <= pixels; done += kSegments * kSegment) {
    for (int64_t i = 0; i < kSegment * kSegments; i += kPiece) {
      const int64_t at = done + i / kPiece % kSegments * kSegment + i / kPiece / kSegments * kPiece;
      convert(at, piece, kPiece);
      for (int64_t j = 0; j < kPiece; j += 16 / sizeof(T)) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(gray + at + j),
                         _mm_load_si128(reinterpret_cast<const __m128i*>(piece + j)));
      }
    }
  }
  _mm_sfence();
  return done;
}

#else

template <typename T, int64_t kSegments, typename Convert>
GRAYSCALE_LOOP int64_t stream(T*, int64_t, const Convert&) {
  return 0;
}

#endif

// `convert(at, gray, pixels)` converts those from `at` on.
template <typename T, int64_t kSegments, typename Convert>
GRAYSCALE_LOOP void convert_dense(const Run<T>& run, const Convert& convert) {
  const int64_t done = run.is_streamed ? stream<T, kSegments>(run.target, run.pixels, convert) : 0;
  convert(done, run.target + done, run.pixels - done);
}

// Strides are constants in the common cases, so that compilers can vectorise the loop. `Vectors` does what
// they do badly: its functions give how many pixels they have done.
template <typename Vectors, typename T>
GRAYSCALE_LOOP void convert_run(const Run<T>& run) {
  const T* red = run.source;
  const T* green = red + run.channel_stride;
  const T* blue = green + run.channel_stride;
  if (run.is_planar()) {
    convert_dense<T, 1>(run, [&](int64_t at, T* gray, int64_t pixels) GRAYSCALE_ALWAYS_INLINE {
      const int64_t done = Vectors::convert_planar(red + at, green + at, blue + at, gray, pixels);
      at += done;
      convert_pixels(red + at, green + at, blue + at, 1, gray + done, 1, pixels - done);
    });
  } else if (run.is_interleaved()) {
    convert_dense<T, 4>(run, [&](int64_t at, T* gray, int64_t pixels) GRAYSCALE_ALWAYS_INLINE {
      const T* first = red + 3 * at;
      const int64_t done = Vectors::convert_interleaved(first, gray, pixels);
      first += 3 * done;
      convert_pixels(first, first + 1, first + 2, 3, gray + done, 1, pixels - done);
    });
  } else {
    convert_pixels(red, green, blue, run.image_stride, run.target, run.gray_stride, run.pixels);
  }
}

template <typename T>
GRAYSCALE_LOOP void spread_pixels(const T* __restrict gray, int64_t gray_stride, T* __restrict red,
                                  T* __restrict green, T* __restrict blue, int64_t image_stride,
                                  int64_t pixels) {
  using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
  for (int64_t i = 0; i < pixels; ++i) {
    const Wide gradient = static_cast<Wide>(gray[i * gray_stride]);
    const int64_t at = i * image_stride;
    red[at] = static_cast<T>(weight<Wide>(0) * gradient);
    green[at] = static_cast<T>(weight<Wide>(1) * gradient);
    blue[at] = static_cast<T>(weight<Wide>(2) * gradient);
  }
}

template <typename Vectors, typename T>
GRAYSCALE_LOOP void spread_run(const Run<T>& run) {
  const T* gray = run.source;
  T* red = run.target;
  T* green = red + run.channel_stride;
  T* blue = green + run.channel_stride;
  if (run.is_planar()) {
    const int64_t done = Vectors::spread_planar(gray, red, green, blue, run.pixels);
    spread_pixels(gray + done, 1, red + done, green + done, blue + done, 1, run.pixels - done);
  } else if (run.is_interleaved()) {
    const int64_t done = Vectors::spread_interleaved(gray, red, run.pixels);
    red += 3 * done;
    spread_pixels(gray + done, 1, red, red + 1, red + 2, 3, run.pixels - done);
  } else {
    spread_pixels(gray, run.gray_stride, red, green, blue, run.image_stride, run.pixels);
  }
}

// All is left to the compiler.
struct Baseline {
  template <typename T>
  static int64_t convert_planar(const T*, const T*, const T*, T*, int64_t) {
    return 0;
  }
  template <typename T>
  static int64_t convert_interleaved(const T*, T*, int64_t) {
    return 0;
  }
  template <typename T>
  static int64_t spread_planar(const T*, T*, T*, T*, int64_t) {
    return 0;
  }
  template <typename T>
  static int64_t spread_interleaved(const T*, T*, int64_t) {
    return 0;
  }
};

template <typename T>
void convert_baseline(const Run<T>& run) {
  convert_run<Baseline>(run);
}

template <typename T>
void spread_baseline(const Run<T>& run) {
  spread_run<Baseline>(run);
}

#if defined(__x86_64__)

// Compilers find no way for vectors through Half. The memory is no faster for wider ones than AVX2's.
struct HalfVectors : Baseline {
  using Baseline::convert_interleaved;
  using Baseline::convert_planar;
  using Baseline::spread_interleaved;
  using Baseline::spread_planar;
  GRAYSCALE_AVX2 static int64_t convert_interleaved(const Half* image, Half* gray, int64_t pixels) {
    return convert_interleaved_half(image, gray, pixels);
  }
  GRAYSCALE_AVX2 static int64_t convert_planar(const Half* red, const Half* green, const Half* blue,
                                               Half* gray, int64_t pixels) {
    return convert_planar_half(red, green, blue, gray, pixels);
  }
  GRAYSCALE_AVX2 static int64_t spread_interleaved(const Half* gray, Half* image, int64_t pixels) {
    return spread_interleaved_half(gray, image, pixels);
  }
  GRAYSCALE_AVX2 static int64_t spread_planar(const Half* gray, Half* red, Half* green, Half* blue,
                                              int64_t pixels) {
    return spread_planar_half(gray, red, green, blue, pixels);
  }
};

// Nor do they find a good one through interleaved bytes.
struct Avx2 : HalfVectors {
  using HalfVectors::convert_interleaved;
  GRAYSCALE_AVX2 static int64_t convert_interleaved(const uint8_t* image, uint8_t* gray, int64_t pixels) {
    return convert_interleaved_avx2(image, gray, pixels);
  }
};

struct Avx512 : HalfVectors {
  using HalfVectors::convert_interleaved;
  GRAYSCALE_AVX512 static int64_t convert_interleaved(const uint8_t* image, uint8_t* gray, int64_t pixels) {
    return convert_interleaved_avx512(image, gray, pixels);
  }
};

template <typename T>
GRAYSCALE_AVX2 void convert_avx2(const Run<T>& run) {
  convert_run<Avx2>(run);
}

template <typename T>
GRAYSCALE_AVX512 void convert_avx512(const Run<T>& run) {
  convert_run<Avx512>(run);
}

template <typename T>
GRAYSCALE_AVX2 void spread_avx2(const Run<T>& run) {
  spread_run<Avx2>(run);
}

template <typename T>
GRAYSCALE_AVX512 void spread_avx512(const Run<T>& run) {
  spread_run<Avx512>(run);
}

// The one for this processor, as far as torch may use it: ATEN_CPU_CAPABILITY asks for less.
template <typename T>
auto choose(void (*baseline)(const Run<T>&), void (*avx2)(const Run<T>&), void (*avx512)(const Run<T>&)) {
  static const std::string capability = at::get_cpu_capability();
  return capability == "AVX512" ? avx512 : capability == "AVX2" ? avx2 : baseline;
}

#endif

// Calls `body` for parts of [0, size), on torch's threads. at::parallel_for is a template in a header, and
// where that is compiled without OpenMP, as an extension is unless it asks for it, it is a plain loop. This
// is the one inside of torch's library, which has its threads whatever the flags here.
template <typename Body>
void parallel_for(int64_t size, int64_t grain, const Body& body) {
  const auto call = [](int64_t begin, int64_t end, void* context) {
    (*static_cast<const Body*>(context))(begin, end);
  };
  const AOTITorchError error = torch_parallel_for(0, size, grain, call, const_cast<Body*>(&body));
  TORCH_CHECK(error == AOTI_TORCH_SUCCESS, "rgb_to_grayscale: torch cannot run its threads");
}

// Calls `body` for parts of rows. Threads share the pixels and not the rows: there may be a single row, or
// very short ones.
template <typename T, typename Body>
void for_each_run(const T* source, T* target, const Geometry& geometry, bool to_gray, const Body& body) {
  const Geometry::Dim& inner = geometry.dim[0];
  const int64_t width = geometry.width();
  const int64_t all = geometry.rows() * width;
  const bool is_streamed = all * static_cast<int64_t>(sizeof(T)) >= kStreamedBytes;
  parallel_for(all, kGrain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t row = begin / width;
      const int64_t column = begin - row * width;
      const Offsets offsets = row_offsets(geometry, row);
      const int64_t image = offsets.image + column * inner.image_stride;
      const int64_t gray = offsets.gray + column * inner.gray_stride;
      Run<T> run{source + (to_gray ? image : gray),
                 target + (to_gray ? gray : image),
                 inner.image_stride,
                 geometry.channel_stride,
                 inner.gray_stride,
                 std::min(width - column, end - begin),
                 is_streamed};
      body(run);
      begin += run.pixels;
    }
  });
}

template <typename T>
void convert(const void* image, void* gray, const Geometry& geometry) {
#if defined(__x86_64__)
  const auto convert_chosen = choose<T>(convert_baseline<T>, convert_avx2<T>, convert_avx512<T>);
#else
  const auto convert_chosen = convert_baseline<T>;
#endif
  for_each_run(static_cast<const T*>(image), static_cast<T*>(gray), geometry, true, convert_chosen);
}

template <typename T>
void spread(const void* gradient, void* image, const Geometry& geometry) {
#if defined(__x86_64__)
  const auto spread_chosen = choose<T>(spread_baseline<T>, spread_avx2<T>, spread_avx512<T>);
#else
  const auto spread_chosen = spread_baseline<T>;
#endif
  for_each_run(static_cast<const T*>(gradient), static_cast<T*>(image), geometry, false, spread_chosen);
}

}  // namespace

void convert_on_cpu(Type type, const void* image, void* gray, const Geometry& geometry) {
  switch (type) {
    case Type::kUint8:
      return convert<uint8_t>(image, gray, geometry);
    case Type::kHalf:
      return convert<Half>(image, gray, geometry);
    case Type::kBfloat16:
      return convert<Bfloat16>(image, gray, geometry);
    case Type::kFloat:
      return convert<float>(image, gray, geometry);
    case Type::kDouble:
      return convert<double>(image, gray, geometry);
  }
}

void spread_on_cpu(Type type, const void* gradient, void* image_gradient, const Geometry& geometry) {
  switch (type) {
    case Type::kUint8:
      return;
    case Type::kHalf:
      return spread<Half>(gradient, image_gradient, geometry);
    case Type::kBfloat16:
      return spread<Bfloat16>(gradient, image_gradient, geometry);
    case Type::kFloat:
      return spread<float>(gradient, image_gradient, geometry);
    case Type::kDouble:
      return spread<double>(gradient, image_gradient, geometry);
  }
}

}  // namespace grayscale
