// The 16-bit floating-point types on the CPU, as their bits: conversions without a branch, which compilers
// vectorise for any instruction set, and which round to the nearest, ties to even.
#pragma once

#include <cstdint>
#include <cstring>

namespace grayscale {

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// 1 bit of sign, 5 of exponent, 10 of fraction.
struct Half {
  uint16_t bits;

  Half() = default;

  explicit Half(float value) {
    const uint32_t sign = bits_of(value) >> 16 & 0x8000;
    const uint32_t magnitude = bits_of(value) & 0x7fffffff;
    // Half of the last bit kept, less one if that bit is even; and the exponent's other bias.
    const uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    // Below 2^-14 the last bit is 2^-24, as it is of float in [0.5, 1): an addition rounds there.
    const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
    uint32_t result = magnitude < (113u << 23) ? subnormal : normal;
    result = magnitude >= 0x477ff000 ? 0x7c00 : result;  // from 65520 on: infinite
    result = magnitude > 0x7f800000 ? 0x7e00 : result;   // not a number
    bits = static_cast<uint16_t>(sign | result);
  }

  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
    // The exponent's other bias by a multiplication, which makes subnormal numbers normal.
    const uint32_t result = bits_of(float_of(magnitude) * float_of((127u + 112u) << 23));
    const uint32_t infinite = magnitude >= (31u << 23) ? 0x7f800000 : 0;
    return float_of(sign | result | infinite);
  }
};

// The upper half of a float.
struct Bfloat16 {
  uint16_t bits;

  Bfloat16() = default;

  explicit Bfloat16(float value) {
    const uint32_t all = bits_of(value);
    const uint32_t rounded = (all + 0x7fff + (all >> 16 & 1)) >> 16;
    bits = static_cast<uint16_t>((all & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
  }

  explicit operator float() const { return float_of(static_cast<uint32_t>(bits) << 16); }
};

}  // namespace grayscale
