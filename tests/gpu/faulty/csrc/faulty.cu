#undef NDEBUG
#include <cassert>

#include "faulty.h"

namespace {

constexpr int kThreads = 128;

__global__ void fill_kernel(float* out, int count, int beyond) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) {
    out[index] = 1.0f;
  }
  if (index < beyond) {
    out[count + index] = 1.0f;  // planted: beyond the end
  }
}

__global__ void reverse_kernel(float* out, bool waits) {
  __shared__ float shared[kThreads];
  shared[threadIdx.x] = out[threadIdx.x];  // planted: a race
  if (waits) {
    __syncthreads();
  }
  out[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];  // planted: a race
}

__global__ void copy_kernel(const float* in, float* out, int count) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) {
    out[index] = in[index];  // planted: nobody may have written it
  }
}

__global__ void meet_kernel(float* out, int every) {
  if (threadIdx.x % every == 0) {
    __syncthreads();  // planted: not all threads of a warp come here
  }
  out[threadIdx.x] += 1.0f;
}

__global__ void hang_kernel() {
  while (clock64() != 0) {
  }
}

__global__ void fail_kernel() { assert(blockIdx.x > 0); }

int blocks(int count) { return (count + kThreads - 1) / kThreads; }

}  // namespace

void fill(float* out, int count, int beyond) { fill_kernel<<<blocks(count), kThreads>>>(out, count, beyond); }
void reverse(float* out, bool waits) { reverse_kernel<<<1, kThreads>>>(out, waits); }
void copy(const float* in, float* out, int count) { copy_kernel<<<blocks(count), kThreads>>>(in, out, count); }
void meet(float* out, int every) { meet_kernel<<<1, kThreads>>>(out, every); }
void hang() { hang_kernel<<<1, 1>>>(); }
void fail() { fail_kernel<<<1, 1>>>(); }
