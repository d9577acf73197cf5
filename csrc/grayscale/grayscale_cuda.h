#pragma once

#include <cuda_runtime_api.h>

#include "geometry.h"

namespace grayscale {

// Starts the conversion; `image` points to the first red element. The pointers belong to the current device,
// and the geometry has at least one pixel. Gives the error of the launch; those of the run come later.
cudaError_t convert_on_cuda(Type type, const void* image, void* gray, const Geometry& geometry,
                            cudaStream_t stream);

// The way back: writes the gradient of the image, given that of the gray. Not for kUint8.
cudaError_t spread_on_cuda(Type type, const void* gradient, void* image_gradient, const Geometry& geometry,
                           cudaStream_t stream);

}  // namespace grayscale
