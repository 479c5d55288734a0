// SPDX-License-Identifier: Apache-2.0
// The kernels of the layout family, which moves values into the layouts that others want: truth
// values into bits, scales into words.
#ifndef QNI_LAYOUT_H
#define QNI_LAYOUT_H

#include "../../runtime/runtime.h"

#include <quern/layout.h>

/** The kernels: what variants.def lists. */
#define QN_VARIANT QN_PROTOTYPES
#define QN_IMAGE(...)
#include "variants.def"
#undef QN_VARIANT
#undef QN_IMAGE

#endif
