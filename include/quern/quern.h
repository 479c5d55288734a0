// SPDX-License-Identifier: Apache-2.0
// All of quern's C API.
#ifndef QUERN_QUERN_H
#define QUERN_QUERN_H

#include <quern/activation.h>
#include <quern/activation_backward.h>
#include <quern/attention.h>
#include <quern/attention_backward.h>
#include <quern/cache.h>
#include <quern/check.h>
#include <quern/choice.h>
#include <quern/core.h>
#include <quern/gemm.h>
#include <quern/kvcache.h>
#include <quern/layout.h>
#include <quern/mla.h>
#include <quern/moe.h>
#include <quern/norm.h>
#include <quern/norm_backward.h>
#include <quern/probe.h>
#include <quern/quantize.h>
#include <quern/rope.h>
#include <quern/sampling.h>
#include <quern/tune.h>

#endif
