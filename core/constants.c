/* The table of simd/constants.h: on its own, so that no other file is compiled with its values. */
#define EW_DEFINE_CONSTANTS
#include "simd.h"
