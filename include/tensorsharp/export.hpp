/// Marks the symbols of the public API; everything else in the shared library is hidden.
#pragma once

#define TS_API __attribute__((visibility("default")))
