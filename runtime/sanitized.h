// SPDX-License-Identifier: Apache-2.0
// For tests: whether a sanitizer watches the program, which then takes several times as long, so
// that tests take fewer cases.
#ifndef QNI_SANITIZED_H
#define QNI_SANITIZED_H

enum { QNI_IS_SANITIZED = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) };

#endif
