// The vector units of x86 that functions are compiled for.
#pragma once

// gcc takes the lower half of the vectors unless it is told otherwise; clang cannot be told, in an attribute.
#if defined(__clang__)
#define GRAYSCALE_WHOLE_VECTORS ""
#else
#define GRAYSCALE_WHOLE_VECTORS ",prefer-vector-width=512"
#endif
// Every processor with AVX2 converts 16-bit floats too, and torch asks for both before it says AVX2.
#define GRAYSCALE_AVX2 __attribute__((target("avx2,f16c")))
#define GRAYSCALE_AVX512 \
  __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl" GRAYSCALE_WHOLE_VECTORS)))
