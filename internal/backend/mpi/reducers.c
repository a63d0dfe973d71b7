/*
 * The functions that MPI calls to combine elements where its own would not have the bits of
 * package reduce; see Library.reducer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stddef.h>

#include "libmpi.h"

#include "_cgo_export.h"

#define REDUCER(dtype, op)                                                                   \
  static void reduce_##dtype##_##op(void *in, void *inout, int *count, void *datatype) {     \
    (void)datatype;                                                                          \
    goMPIReduce(dtype, op, in, inout, *count);                                               \
  }
#define OF_DTYPE(dtype) REDUCER(dtype, 1) REDUCER(dtype, 3) REDUCER(dtype, 4) REDUCER(dtype, 5)
#define NAMES(dtype) [dtype] = {NULL, reduce_##dtype##_1, NULL, reduce_##dtype##_3, reduce_##dtype##_4, reduce_##dtype##_5}

/* All but int32 and int64, by their numbers; sum, min, max and product. */
OF_DTYPE(0) OF_DTYPE(1) OF_DTYPE(2) OF_DTYPE(3) OF_DTYPE(6) OF_DTYPE(7) OF_DTYPE(8) OF_DTYPE(9) OF_DTYPE(10)

static gv_reducer *const reducers[GV_DTYPES][GV_OPS] = {NAMES(0), NAMES(1), NAMES(2), NAMES(3), NAMES(6), NAMES(7), NAMES(8), NAMES(9), NAMES(10)};

gv_reducer *gv_reducer_of(int dtype, int op) { return reducers[dtype][op]; }
