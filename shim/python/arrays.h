/*
 * arrays.h: the short way of blocking calls on NumPy's arrays, by which JAX and TensorFlow show their tensors.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_ARRAYS_H
#define GOROVOD_ARRAYS_H

#include "abi.h"

/* run_on_array(kind, source, target, name, process_set, reduce_op, prescale, postscale, root_rank)
 *
 * An allreduce or a broadcast, from its submission to its end. kind is the engine's number, name of bytes or None;
 * source is an array, and target another one like it, or None: then the result is a DLPack capsule, whose memory is
 * aligned to 64 bytes. Returns the result; or an int, the status of a refusal, whose reason gorovod_last_error() has;
 * or the operation, which is one of those adrift, and keeps source and result, if it has failed or has not ended soon;
 * or None if nothing has been done. */
PyObject *run_on_array(PyObject *module, PyObject *const *args, Py_ssize_t n);

/* setup_arrays(class, free, grow, adrift, dtypes, wait_ms): the pool of the operations and their class, the dict of
 * those that Python code is to take over, a dict from numpy.dtype to the engine's number and the bytes of an element,
 * and the longest wait without a look at signals. */
PyObject *setup_arrays(PyObject *module, PyObject *args);

#endif
