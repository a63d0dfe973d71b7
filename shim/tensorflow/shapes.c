/* SPDX-License-Identifier: Apache-2.0 */
#include "shim.h"

void shape_same(TF_ShapeInferenceContext *c, TF_Status *status) {
  TF_ShapeHandle *shape = tf.TF_NewShapeHandle();
  int64_t n = tf.TF_ShapeInferenceContextNumInputs(c);
  for (int i = 0; i < n && tf.TF_GetCode(status) == TF_OK; i++) {
    tf.TF_ShapeInferenceContextGetInput(c, i, shape, status);
    if (tf.TF_GetCode(status) == TF_OK) tf.TF_ShapeInferenceContextSetOutput(c, i, shape, status);
  }
  tf.TF_DeleteShapeHandle(shape);
}

/* Sets output i to input i's shape with an unknown first dimension. */
static void rows(TF_ShapeInferenceContext *c, int i, TF_Status *status) {
  TF_ShapeHandle *in = tf.TF_NewShapeHandle();
  TF_ShapeHandle *rest = tf.TF_NewShapeHandle();
  TF_ShapeHandle *out = tf.TF_NewShapeHandle();
  tf.TF_ShapeInferenceContextGetInput(c, i, in, status);
  if (tf.TF_GetCode(status) == TF_OK && tf.TF_ShapeInferenceContextRankKnown(c, in) &&
      tf.TF_ShapeInferenceContextRank(c, in) > 0) {
    TF_ShapeHandle *first = tf.TF_ShapeInferenceContextVectorFromSize(c, (size_t)-1); /* unknown */
    tf.TF_ShapeInferenceContextSubshape(c, in, 1, INT64_MAX, rest, status);
    if (tf.TF_GetCode(status) == TF_OK)
      tf.TF_ShapeInferenceContextConcatenateShapes(c, first, rest, out, status);
    tf.TF_DeleteShapeHandle(first);
  }
  /* An unset handle is an unknown shape. */
  if (tf.TF_GetCode(status) == TF_OK) tf.TF_ShapeInferenceContextSetOutput(c, i, out, status);
  tf.TF_DeleteShapeHandle(in);
  tf.TF_DeleteShapeHandle(rest);
  tf.TF_DeleteShapeHandle(out);
}

void shape_rows(TF_ShapeInferenceContext *c, TF_Status *status) {
  int64_t n = tf.TF_ShapeInferenceContextNumInputs(c);
  for (int i = 0; i < n && tf.TF_GetCode(status) == TF_OK; i++) rows(c, i, status);
}

void shape_alltoall(TF_ShapeInferenceContext *c, TF_Status *status) {
  rows(c, 0, status);
  if (tf.TF_GetCode(status) != TF_OK) return;
  TF_ShapeHandle *vector = tf.TF_ShapeInferenceContextVectorFromSize(c, (size_t)-1);
  tf.TF_ShapeInferenceContextSetOutput(c, 1, vector, status);
  tf.TF_DeleteShapeHandle(vector);
}

void shape_scalar(TF_ShapeInferenceContext *c, TF_Status *status) {
  TF_ShapeHandle *scalar = tf.TF_ShapeInferenceContextScalar(c);
  tf.TF_ShapeInferenceContextSetOutput(c, 0, scalar, status);
  tf.TF_DeleteShapeHandle(scalar);
}

void shape_none(TF_ShapeInferenceContext *c, TF_Status *status) {
  (void)c;
  (void)status;
}
