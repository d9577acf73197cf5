// Interleaved bytes by the vector units of x86: RGBRGB… to a byte for each pixel.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "luma.h"
#include "targets_x86.h"

namespace grayscale {

// Four pixels, 12 bytes, of each 16 become pairs of 16-bit numbers: red with green, and blue with 1. One
// instruction multiplies the pairs with weights and adds, so that each pixel is a number of 32 bits; an
// eighth of it fits into 15, where the division by 125 is a multiplication (luma.h).
constexpr char kZero = -128;
#define GRAYSCALE_RED_GREEN \
  _mm_setr_epi8(0, kZero, 1, kZero, 3, kZero, 4, kZero, 6, kZero, 7, kZero, 9, kZero, 10, kZero)
#define GRAYSCALE_BLUE                                                                                    \
  _mm_setr_epi8(2, kZero, kZero, kZero, 5, kZero, kZero, kZero, 8, kZero, kZero, kZero, 11, kZero, kZero, \
                kZero)
constexpr int32_t kRedGreenWeights = 587 << 16 | 299;
constexpr int32_t kBlueWeights = 500 << 16 | 114;
constexpr int32_t kOnes = 1 << 16;

// For bytes of which the second half's first is the fifth. Those that stand for a zero stay negative.
GRAYSCALE_AVX2 inline __m256i halves(__m128i places) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(places), _mm_add_epi8(places, _mm_set1_epi8(4)), 1);
}

// Of 8 pixels. The second half is at byte 4 of its 16, so that nothing behind the pixels is read.
GRAYSCALE_AVX2 inline __m256i eighths_avx2(const uint8_t* image) {
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(image));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(image + 8));
  const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  const __m256i red_green = _mm256_shuffle_epi8(bytes, halves(GRAYSCALE_RED_GREEN));
  const __m256i blue = _mm256_shuffle_epi8(bytes, halves(GRAYSCALE_BLUE));
  const __m256i sum = _mm256_add_epi32(
      _mm256_madd_epi16(red_green, _mm256_set1_epi32(kRedGreenWeights)),
      _mm256_madd_epi16(_mm256_or_si256(blue, _mm256_set1_epi32(kOnes)), _mm256_set1_epi32(kBlueWeights)));
  return _mm256_srli_epi32(sum, 3);
}

GRAYSCALE_AVX2 inline __m256i quotients_avx2(__m256i low, __m256i high) {
  const __m256i inverse = _mm256_set1_epi16(static_cast<int16_t>(kInverseOf125));
  return _mm256_srli_epi16(_mm256_mulhi_epu16(_mm256_packs_epi32(low, high), inverse), kInverseShift - 16);
}

// Gives how many pixels it has converted: it leaves some at the end.
GRAYSCALE_AVX2 inline int64_t convert_interleaved_avx2(const uint8_t* image, uint8_t* gray, int64_t pixels) {
  int64_t i = 0;
  for (; i + 32 <= pixels; i += 32) {
    const uint8_t* source = image + 3 * i;
    const __m256i first = quotients_avx2(eighths_avx2(source), eighths_avx2(source + 24));
    const __m256i second = quotients_avx2(eighths_avx2(source + 48), eighths_avx2(source + 72));
    // Packing works by lanes of 16 bytes, and leaves the groups of four pixels in this order.
    const __m256i result = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, second),
                                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(gray + i), result);
  }
  return i;
}

// Of 16 pixels. The masks select everything: gcc 12 warns of the intrinsics without.
GRAYSCALE_AVX512 inline __m512i eighths_avx512(const uint8_t* image) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11);
  const __m512i bytes =
      _mm512_maskz_permutexvar_epi32(0xffff, lanes, _mm512_maskz_loadu_epi32(0x0fff, image));
  const __m512i red_green =
      _mm512_shuffle_epi8(bytes, _mm512_maskz_broadcast_i32x4(0xffff, GRAYSCALE_RED_GREEN));
  const __m512i blue = _mm512_shuffle_epi8(bytes, _mm512_maskz_broadcast_i32x4(0xffff, GRAYSCALE_BLUE));
  const __m512i sum = _mm512_add_epi32(
      _mm512_madd_epi16(red_green, _mm512_set1_epi32(kRedGreenWeights)),
      _mm512_madd_epi16(_mm512_or_si512(blue, _mm512_set1_epi32(kOnes)), _mm512_set1_epi32(kBlueWeights)));
  return _mm512_maskz_srli_epi32(0xffff, sum, 3);
}

GRAYSCALE_AVX512 inline __m512i quotients_avx512(__m512i low, __m512i high) {
  const __m512i inverse = _mm512_set1_epi16(static_cast<int16_t>(kInverseOf125));
  return _mm512_srli_epi16(_mm512_mulhi_epu16(_mm512_packs_epi32(low, high), inverse), kInverseShift - 16);
}

GRAYSCALE_AVX512 inline int64_t convert_interleaved_avx512(const uint8_t* image, uint8_t* gray,
                                                           int64_t pixels) {
  int64_t i = 0;
  for (; i + 64 <= pixels; i += 64) {
    const uint8_t* source = image + 3 * i;
    const __m512i first = quotients_avx512(eighths_avx512(source), eighths_avx512(source + 48));
    const __m512i second = quotients_avx512(eighths_avx512(source + 96), eighths_avx512(source + 144));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i result = _mm512_maskz_permutexvar_epi32(0xffff, order, _mm512_packus_epi16(first, second));
    _mm512_storeu_si512(gray + i, result);
  }
  return i;
}

}  // namespace grayscale
