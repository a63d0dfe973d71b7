/*
 * tf.h: the part of TensorFlow's C interface that this shim needs. It is found at run
 * time in the loaded TensorFlow, so that one library serves every version. The
 * declarations restate a stable interface (tensorflow/c/{tf_status,tf_tensor,ops,kernels}.h).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GOROVOD_TF_H
#define GOROVOD_TF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_AsyncOpKernelDoneCallback TF_AsyncOpKernelDoneCallback;

typedef struct {
  const char *data;
  size_t len;
} TF_StringView;

enum {
  TF_OK = 0, TF_UNKNOWN = 2, TF_INVALID_ARGUMENT = 3, TF_RESOURCE_EXHAUSTED = 8,
  TF_FAILED_PRECONDITION = 9, TF_ABORTED = 10
};

enum {
  TF_FLOAT = 1, TF_DOUBLE = 2, TF_INT32 = 3, TF_UINT8 = 4, TF_INT16 = 5, TF_INT8 = 6,
  TF_INT64 = 9, TF_BOOL = 10, TF_BFLOAT16 = 14, TF_UINT16 = 17, TF_HALF = 19
};

enum { MAX_DIMS = 254 }; /* TensorFlow's own limit */

/* Each line: result, name, parameters. */
#define TF_FUNCTIONS(F)                                                                          \
  F(const char *, TF_Version, (void))                                                            \
  F(TF_Status *, TF_NewStatus, (void))                                                           \
  F(void, TF_DeleteStatus, (TF_Status *))                                                        \
  F(void, TF_SetStatus, (TF_Status *, int, const char *))                                        \
  F(int, TF_GetCode, (const TF_Status *))                                                        \
  F(const char *, TF_Message, (const TF_Status *))                                               \
  F(void *, TF_TensorData, (const TF_Tensor *))                                                  \
  F(size_t, TF_TensorByteSize, (const TF_Tensor *))                                              \
  F(int, TF_TensorType, (const TF_Tensor *))                                                     \
  F(int, TF_NumDims, (const TF_Tensor *))                                                        \
  F(int64_t, TF_Dim, (const TF_Tensor *, int))                                                   \
  F(void, TF_DeleteTensor, (TF_Tensor *))                                                        \
  F(TF_OpDefinitionBuilder *, TF_NewOpDefinitionBuilder, (const char *))                         \
  F(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder *, TF_Status *))                      \
  F(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder *, const char *))               \
  F(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder *, const char *))              \
  F(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder *, const char *))             \
  F(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder *, bool))                 \
  F(void, TF_OpDefinitionBuilderSetShapeInferenceFunction,                                       \
    (TF_OpDefinitionBuilder *, void (*)(TF_ShapeInferenceContext *, TF_Status *)))               \
  F(int64_t, TF_ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext *))                    \
  F(TF_ShapeHandle *, TF_NewShapeHandle, (void))                                                 \
  F(void, TF_DeleteShapeHandle, (TF_ShapeHandle *))                                              \
  F(void, TF_ShapeInferenceContextGetInput,                                                      \
    (TF_ShapeInferenceContext *, int, TF_ShapeHandle *, TF_Status *))                            \
  F(void, TF_ShapeInferenceContextSetOutput,                                                     \
    (TF_ShapeInferenceContext *, int, TF_ShapeHandle *, TF_Status *))                            \
  F(TF_ShapeHandle *, TF_ShapeInferenceContextScalar, (TF_ShapeInferenceContext *))              \
  F(TF_ShapeHandle *, TF_ShapeInferenceContextVectorFromSize,                                    \
    (TF_ShapeInferenceContext *, size_t))                                                        \
  F(int, TF_ShapeInferenceContextRankKnown, (TF_ShapeInferenceContext *, TF_ShapeHandle *))      \
  F(int64_t, TF_ShapeInferenceContextRank, (TF_ShapeInferenceContext *, TF_ShapeHandle *))       \
  F(void, TF_ShapeInferenceContextSubshape,                                                      \
    (TF_ShapeInferenceContext *, TF_ShapeHandle *, int64_t, int64_t, TF_ShapeHandle *,           \
     TF_Status *))                                                                               \
  F(void, TF_ShapeInferenceContextConcatenateShapes,                                             \
    (TF_ShapeInferenceContext *, TF_ShapeHandle *, TF_ShapeHandle *, TF_ShapeHandle *,           \
     TF_Status *))                                                                               \
  F(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext *, TF_Status *))    \
  F(TF_KernelBuilder *, TF_NewKernelBuilder,                                                     \
    (const char *, const char *, void *(*)(TF_OpKernelConstruction *),                           \
     void (*)(void *, TF_OpKernelContext *), void (*)(void *)))                                  \
  F(void, TF_RegisterKernelBuilder, (const char *, TF_KernelBuilder *, TF_Status *))             \
  F(int, TF_NumInputs, (TF_OpKernelContext *))                                                   \
  F(void, TF_GetInput, (TF_OpKernelContext *, int, TF_Tensor **, TF_Status *))                   \
  F(TF_Tensor *, TF_AllocateOutput,                                                              \
    (TF_OpKernelContext *, int, int, const int64_t *, int, size_t, TF_Status *))                 \
  F(TF_Tensor *, TF_ForwardInputOrAllocateOutput,                                                \
    (TF_OpKernelContext *, const int *, int, int, const int64_t *, int, int *, TF_Status *))     \
  F(void, TF_OpKernelContext_Failure, (TF_OpKernelContext *, TF_Status *))                       \
  F(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction *, TF_Status *))             \
  F(TF_StringView, TF_OpKernelConstruction_GetName, (TF_OpKernelConstruction *))                 \
  F(void, TF_OpKernelConstruction_GetAttrInt32,                                                  \
    (TF_OpKernelConstruction *, const char *, int32_t *, TF_Status *))                           \
  F(void, TF_OpKernelConstruction_GetAttrInt64,                                                  \
    (TF_OpKernelConstruction *, const char *, int64_t *, TF_Status *))                           \
  F(void, TF_OpKernelConstruction_GetAttrFloat,                                                  \
    (TF_OpKernelConstruction *, const char *, float *, TF_Status *))                             \
  F(void, TF_OpKernelConstruction_GetAttrBool,                                                   \
    (TF_OpKernelConstruction *, const char *, unsigned char *, TF_Status *))                     \
  F(void, TF_OpKernelConstruction_GetAttrSize,                                                   \
    (TF_OpKernelConstruction *, const char *, int32_t *, int32_t *, TF_Status *))                \
  F(void, TF_OpKernelConstruction_GetAttrString,                                                 \
    (TF_OpKernelConstruction *, const char *, char *, size_t, TF_Status *))

/* These are NULL in some versions, older or newer ones. */
#define TF_OPTIONAL_FUNCTIONS(F)                                                                    \
  F(TF_KernelBuilder *, TF_NewAsyncKernelBuilder,                                                \
    (const char *, const char *, void *(*)(TF_OpKernelConstruction *),                           \
     void (*)(void *, TF_OpKernelContext *, TF_AsyncOpKernelDoneCallback *), void (*)(void *)))  \
  F(void, TF_GetInputTensorFromVariable,                                                         \
    (TF_OpKernelContext *, int, bool, bool, bool,                                                \
     void (*)(TF_OpKernelContext *, TF_Tensor *, TF_Tensor *), TF_Tensor **, TF_Status *))

struct tf_functions {
#define FIELD(result, name, parameters) result(*name) parameters;
  TF_FUNCTIONS(FIELD)
  TF_OPTIONAL_FUNCTIONS(FIELD)
#undef FIELD
};

/* Use it only after tf_find has returned NULL. */
extern struct tf_functions tf;

/* Finds all functions. Returns NULL, or the name of a required function that this version lacks. */
const char *tf_find(void);

#endif
