#pragma once

#include "geometry.h"

namespace grayscale {

// On torch's threads. `image` points to the first red element.
void convert_on_cpu(Type type, const void* image, void* gray, const Geometry& geometry);

// The way back: writes the gradient of the image, given that of the gray. Not for kUint8.
void spread_on_cpu(Type type, const void* gradient, void* image_gradient, const Geometry& geometry);

}  // namespace grayscale
