// Half by the vector units of x86: compilers make a loop without vectors of what half.h says, and processors
// have instructions for it. They need no help with Bfloat16.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "half.h"
#include "luma.h"
#include "targets_x86.h"

namespace grayscale {

// Eight numbers, as they lie in memory.
GRAYSCALE_AVX2 inline __m128i load_eight(const void* numbers) {
  return _mm_loadu_si128(static_cast<const __m128i*>(numbers));
}

GRAYSCALE_AVX2 inline void store_eight(void* numbers, __m128i values) {
  _mm_storeu_si128(static_cast<__m128i*>(numbers), values);
}

// To float, and back: to the nearest, ties to even, and one bit pattern for what is not a number, like
// half.h.
GRAYSCALE_AVX2 inline __m256 widen(__m128i numbers) { return _mm256_cvtph_ps(numbers); }

GRAYSCALE_AVX2 inline __m128i narrow(__m256 numbers) {
  const __m256 sign = _mm256_and_ps(numbers, _mm256_set1_ps(-0.0f));
  const __m256 no_number = _mm256_or_ps(sign, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)));
  const __m256 is_none = _mm256_cmp_ps(numbers, numbers, _CMP_UNORD_Q);
  return _mm256_cvtps_ph(_mm256_blendv_ps(numbers, no_number, is_none), _MM_FROUND_TO_NEAREST_INT);
}

GRAYSCALE_AVX2 inline __m256 weigh(int channel, __m256 numbers) {
  return _mm256_mul_ps(_mm256_set1_ps(weight<float>(channel)), numbers);
}

GRAYSCALE_AVX2 inline __m128i luma_of_eight(__m128i red, __m128i green, __m128i blue) {
  const __m256 red_and_green = _mm256_add_ps(weigh(0, widen(red)), weigh(1, widen(green)));
  return narrow(_mm256_add_ps(red_and_green, weigh(2, widen(blue))));
}

// A shuffle: `From::at(i)` is the place of the number to take for the i-th. Where the vector has no such
// place, the result is zero.
template <typename From, size_t... kByte>
GRAYSCALE_AVX2 inline __m128i shuffle_eight(__m128i numbers, From, std::index_sequence<kByte...>) {
  constexpr auto byte_of = [](int place, int byte) {
    return static_cast<char>(place >= 0 && place < 8 ? 2 * place + byte : -128);
  };
  return _mm_shuffle_epi8(numbers, _mm_setr_epi8(byte_of(From::at(kByte / 2), kByte % 2)...));
}

// From one of the three vectors of eight pixels, those of a channel: a third of the 24 numbers.
template <int kVector, int kChannel>
struct FromPixels {
  static constexpr int at(int i) { return 3 * i + kChannel - 8 * kVector; }
};

// The way back.
template <int kVector, int kChannel>
struct FromChannel {
  static constexpr int at(int i) { return (8 * kVector + i) % 3 == kChannel ? (8 * kVector + i) / 3 : -1; }
};

template <typename First, typename Second, typename Third>
GRAYSCALE_AVX2 inline __m128i shuffle_three(const __m128i (&vectors)[3]) {
  constexpr std::make_index_sequence<16> bytes;
  return _mm_or_si128(
      _mm_or_si128(shuffle_eight(vectors[0], First(), bytes), shuffle_eight(vectors[1], Second(), bytes)),
      shuffle_eight(vectors[2], Third(), bytes));
}

template <int kChannel>
GRAYSCALE_AVX2 inline __m128i channel_of(const __m128i (&pixels)[3]) {
  return shuffle_three<FromPixels<0, kChannel>, FromPixels<1, kChannel>, FromPixels<2, kChannel>>(pixels);
}

template <int kVector>
GRAYSCALE_AVX2 inline __m128i pixels_of(const __m128i (&channels)[3]) {
  return shuffle_three<FromChannel<kVector, 0>, FromChannel<kVector, 1>, FromChannel<kVector, 2>>(channels);
}

// The functions below give how many pixels they have converted: they leave some at the end.

GRAYSCALE_AVX2 inline int64_t convert_planar_half(const Half* red, const Half* green, const Half* blue,
                                                  Half* gray, int64_t pixels) {
  int64_t i = 0;
  for (; i + 8 <= pixels; i += 8) {
    store_eight(gray + i, luma_of_eight(load_eight(red + i), load_eight(green + i), load_eight(blue + i)));
  }
  return i;
}

GRAYSCALE_AVX2 inline int64_t convert_interleaved_half(const Half* image, Half* gray, int64_t pixels) {
  int64_t i = 0;
  for (; i + 8 <= pixels; i += 8) {
    const Half* source = image + 3 * i;
    const __m128i eight[3] = {load_eight(source), load_eight(source + 8), load_eight(source + 16)};
    store_eight(gray + i, luma_of_eight(channel_of<0>(eight), channel_of<1>(eight), channel_of<2>(eight)));
  }
  return i;
}

GRAYSCALE_AVX2 inline int64_t spread_planar_half(const Half* gray, Half* red, Half* green, Half* blue,
                                                 int64_t pixels) {
  int64_t i = 0;
  for (; i + 8 <= pixels; i += 8) {
    const __m256 gradient = widen(load_eight(gray + i));
    store_eight(red + i, narrow(weigh(0, gradient)));
    store_eight(green + i, narrow(weigh(1, gradient)));
    store_eight(blue + i, narrow(weigh(2, gradient)));
  }
  return i;
}

GRAYSCALE_AVX2 inline int64_t spread_interleaved_half(const Half* gray, Half* image, int64_t pixels) {
  int64_t i = 0;
  for (; i + 8 <= pixels; i += 8) {
    const __m256 gradient = widen(load_eight(gray + i));
    const __m128i channels[3] = {narrow(weigh(0, gradient)), narrow(weigh(1, gradient)),
                                 narrow(weigh(2, gradient))};
    Half* target = image + 3 * i;
    store_eight(target, pixels_of<0>(channels));
    store_eight(target + 8, pixels_of<1>(channels));
    store_eight(target + 16, pixels_of<2>(channels));
  }
  return i;
}

}  // namespace grayscale
