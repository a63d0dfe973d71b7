/*
 * done.h: a copy of the callback that ends an asynchronous kernel.
 *
 * TensorFlow passes compute_async a pointer to a std::function<void()>. Up to some
 * version that function is a parameter of the caller, which dies when compute_async returns,
 * so it must be copied before. The C interface offers no copy. This file relies on the
 * layout of libstdc++'s std::function, which cannot change without breaking every
 * C++ program.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_TF_DONE_H
#define GOROVOD_TF_DONE_H

#include "tf.h"

#ifndef __linux__
#error "the layout of std::function is known for libstdc++ only"
#endif

struct done {
  void *storage[2];
  bool (*manager)(struct done *, const struct done *, int operation);
  void (*invoker)(const struct done *);
};

enum { DONE_CLONE = 2, DONE_DESTROY = 3 };

static inline struct done done_copy(TF_AsyncOpKernelDoneCallback *callback) {
  const struct done *from = (const struct done *)callback;
  struct done copy = *from;
  if (from->manager != NULL) from->manager(&copy, from, DONE_CLONE);
  return copy;
}

/* Ends the kernel, and the copy. */
static inline void done_run(struct done *d) {
  d->invoker(d);
  if (d->manager != NULL) d->manager(d, d, DONE_DESTROY);
}

#endif
