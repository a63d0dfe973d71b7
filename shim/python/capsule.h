/*
 * capsule.h: memory for a result, which a framework adopts by DLPack.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_CAPSULE_H
#define GOROVOD_CAPSULE_H

#include "abi.h"
#include "tensor.h"

/* Makes a capsule "dltensor" with memory of that many bytes for a tensor like this one, and points at the memory. A new
 * reference; NULL with an exception if there is no memory, or if DLPack has no such type. */
PyObject *capsule_like(const struct view *view, size_t bytes, void **memory);

#endif
