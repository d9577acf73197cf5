#pragma once

#include <cstdint>

#include "geometry.h"

namespace grayscale {

// Converts the image whose first red element `image` points to, on torch's threads.
void convert_on_cpu(const uint8_t* image, uint8_t* gray, const Geometry& geometry);
void convert_on_cpu(const float* image, float* gray, const Geometry& geometry);

}  // namespace grayscale
