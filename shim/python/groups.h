/*
 * groups.h: the short way of torch.distributed's calls.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_GROUPS_H
#define GOROVOD_GROUPS_H

#include "abi.h"

/* run_in_group(kind, source, target, group, number, process_set, stream, reduce_op, root_rank, members, wait_ms)
 *
 * The operation, from its submission to its end; or its submission alone, if wait_ms is negative. kind is the engine's
 * number; source and target are the tensors, one and the same for an operation in place, None for a barrier; the
 * operation's name is group, of bytes, with number after it.
 *
 * Returns True; or the operation, which is one of those adrift, if it has failed, or has not ended within wait_ms, or
 * its tensors have got other memory; or None if nothing has been done. */
PyObject *run_in_group(PyObject *module, PyObject *const *args, Py_ssize_t n);

/* setup_groups(free, grow, adrift): the pool of the operations, and the dict of those that Python code is to take over. */
PyObject *setup_groups(PyObject *module, PyObject *args);

#endif
