// The formulas, BT.601 luma of one pixel and the way back, for the compiler of either device.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define GRAYSCALE_HOST_DEVICE __host__ __device__
#else
#define GRAYSCALE_HOST_DEVICE
#endif

namespace grayscale {

// n / 1000 for every n up to 255500, the most that three bytes come to: n / 8 has 15 bits, and its quotient
// by 125 is the upper half of a product of 16-bit numbers, shifted. Vector units have that, and no division.
// tests/kernel tries every colour.
constexpr uint32_t kInverseOf125 = 33555;  // 2^22 / 125, rounded up
constexpr int kInverseShift = 22;

// Integer arithmetic, rounded half up, so that every device gives the same byte.
GRAYSCALE_HOST_DEVICE inline uint8_t luma(uint8_t red, uint8_t green, uint8_t blue) {
  const uint32_t thousandths = 299u * red + 587u * green + 114u * blue + 500u;
  return static_cast<uint8_t>(((thousandths >> 3) * kInverseOf125) >> kInverseShift);
}

// The share of a channel in the gray.
template <typename T>
GRAYSCALE_HOST_DEVICE constexpr T weight(int channel) {
  return static_cast<T>(channel == 0 ? 0.299 : channel == 1 ? 0.587 : 0.114);
}

// Five roundings, none left out: build.toml forbids the compilers to fuse a multiplication with an addition
// (-ffp-contract=off, -fmad=false), so that every device and vector unit gives the same bits. No term passes
// through more than four of them, its weight's included: the error is at most 4 * 2^-24 * sum(|weight *
// channel|), with 2^-53 for double.
template <typename T>
GRAYSCALE_HOST_DEVICE inline T weighted_sum(T red, T green, T blue) {
  return weight<T>(0) * red + weight<T>(1) * green + weight<T>(2) * blue;
}

GRAYSCALE_HOST_DEVICE inline float luma(float red, float green, float blue) {
  return weighted_sum(red, green, blue);
}

GRAYSCALE_HOST_DEVICE inline double luma(double red, double green, double blue) {
  return weighted_sum(red, green, blue);
}

}  // namespace grayscale
