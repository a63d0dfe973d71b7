/*
 * The functions that MPI calls to combine elements where its own functions would give other bits
 * than package reduce; see Library.reducer.
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
#define OF_FLOAT(dtype) REDUCER(dtype, 1) REDUCER(dtype, 3) REDUCER(dtype, 4) REDUCER(dtype, 5)
#define OF_BITS(dtype) OF_FLOAT(dtype) REDUCER(dtype, 6) REDUCER(dtype, 7) REDUCER(dtype, 8)
#define FLOAT(dtype) NULL, reduce_##dtype##_1, NULL, reduce_##dtype##_3, reduce_##dtype##_4, reduce_##dtype##_5
#define BITS(dtype) FLOAT(dtype), reduce_##dtype##_6, reduce_##dtype##_7, reduce_##dtype##_8

/* The types by number, without int32 and int64. Each has sum, min, max and product; those that are no floats also have
 * the operations on bits. */
OF_BITS(0) OF_BITS(1) OF_BITS(2) OF_BITS(3) OF_FLOAT(6) OF_FLOAT(7) OF_FLOAT(8) OF_BITS(9) OF_FLOAT(10)

static gv_reducer *const reducers[GV_DTYPES][GV_OPS] = {
    [0] = {BITS(0)}, [1] = {BITS(1)}, [2] = {BITS(2)}, [3] = {BITS(3)}, [6] = {FLOAT(6)}, [7] = {FLOAT(7)}, [8] = {FLOAT(8)}, [9] = {BITS(9)}, [10] = {FLOAT(10)}};

gv_reducer *gv_reducer_of(int dtype, int op) { return reducers[dtype][op]; }
