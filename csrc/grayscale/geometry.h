// Where the pixels lie: all that the device code knows of the shapes and strides of its tensors.
#pragma once

#include <cstdint>

#include "luma.h"

namespace grayscale {

constexpr int kMaxDims = 16;

// The pixels of an RGB image and of its gray counterpart, as one loop nest for both.
//
// Dimensions are ordered from the innermost outwards, and those that can be walked as one are merged: a
// contiguous image has a single dimension, a batch of them two. Strides count elements. A channel is no
// dimension: green lies `channel_stride` elements after red, and blue as far after green.
struct Geometry {
  int dims = 1;
  int64_t sizes[kMaxDims] = {1};
  int64_t image_strides[kMaxDims] = {0};
  int64_t gray_strides[kMaxDims] = {0};
  int64_t channel_stride = 0;

  // Number of runs along the innermost dimension.
  int64_t rows() const {
    int64_t rows = 1;
    for (int dim = 1; dim < dims; ++dim) {
      rows *= sizes[dim];
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
  for (int dim = 1; dim < geometry.dims; ++dim) {
    const Index size = static_cast<Index>(geometry.sizes[dim]);
    const Index rest = row / size;
    const int64_t position = static_cast<int64_t>(row - rest * size);
    offsets.image += position * geometry.image_strides[dim];
    offsets.gray += position * geometry.gray_strides[dim];
    row = rest;
  }
  return offsets;
}

}  // namespace grayscale
