#pragma once

// Writes `count` ones, and as many beyond the end as `beyond` says.
void fill(float* out, int count, int beyond);
// Never ends.
void hang();
// Fails an assertion on the device.
void fail();
