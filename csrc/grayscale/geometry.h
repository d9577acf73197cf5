// Where the pixels lie: all that the code of a device knows of the shapes and strides of its tensors.
#pragma once

#include <cstdint>

#include "luma.h"

namespace grayscale {

// Of the elements of both tensors.
enum class Type { kUint8, kHalf, kBfloat16, kFloat, kDouble };

constexpr int kMaxDims = 16;

// The pixels of an RGB image and of its gray counterpart, as one loop nest for both.
//
// Dimensions are ordered from the innermost outwards, and those that can be walked as one are merged: a
// contiguous image has a single dimension, a batch of them two. Strides count elements. A channel is no
// dimension: green lies `channel_stride` elements after red, and blue as far after green.
struct Geometry {
  struct Dim {
    int64_t size = 1;
    int64_t image_stride = 0;
    int64_t gray_stride = 0;
  };

  int dims = 1;
  int64_t channel_stride = 0;
  Dim dim[kMaxDims];

  // Pixels along the innermost dimension, and how many such runs there are.
  GRAYSCALE_HOST_DEVICE int64_t width() const { return dim[0].size; }

  int64_t rows() const {
    int64_t rows = 1;
    for (int i = 1; i < dims; ++i) {
      rows *= dim[i].size;
    }
    return rows;
  }
};

struct Offsets {
  int64_t image = 0;
  int64_t gray = 0;
};

// Where a row starts. `Index` is the type to divide in: 32 bits where they suffice, which a GPU does much
// faster.
template <typename Index>
GRAYSCALE_HOST_DEVICE inline Offsets row_offsets(const Geometry& geometry, Index row) {
  Offsets offsets;
  for (int i = 1; i < geometry.dims; ++i) {
    const Geometry::Dim& dim = geometry.dim[i];
    Index position = row;
    if (i + 1 < geometry.dims) {
      row /= static_cast<Index>(dim.size);
      position -= row * static_cast<Index>(dim.size);
    }
    offsets.image += static_cast<int64_t>(position) * dim.image_stride;
    offsets.gray += static_cast<int64_t>(position) * dim.gray_stride;
  }
  return offsets;
}

}  // namespace grayscale
