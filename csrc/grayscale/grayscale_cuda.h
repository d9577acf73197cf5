#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "geometry.h"

namespace grayscale {

// Starts the conversion of the image whose first red element `image` points to. The pointers belong to the
// current device, and the geometry has at least one pixel. Gives the error of the launch; those of the run
// come later.
cudaError_t convert_on_cuda(const uint8_t* image, uint8_t* gray, const Geometry& geometry,
                            cudaStream_t stream);
cudaError_t convert_on_cuda(const float* image, float* gray, const Geometry& geometry, cudaStream_t stream);

}  // namespace grayscale
