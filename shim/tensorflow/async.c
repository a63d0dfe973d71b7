/* SPDX-License-Identifier: Apache-2.0 */
#include "async.h"

#include <string.h>

const char *async_find(void) {
  if (tf.TF_NewAsyncKernelBuilder != NULL) return NULL;
  return strncmp(tf.TF_Version(), "2.12.", 5) == 0 ? async_find_2_12() : "TF_NewAsyncKernelBuilder";
}

void async_register(const char *op, struct async_kernel kernel, TF_Status *status) {
  if (tf.TF_NewAsyncKernelBuilder == NULL) {
    async_register_2_12(op, kernel);
    return;
  }
  TF_KernelBuilder *b = tf.TF_NewAsyncKernelBuilder(op, "CPU", kernel.create, kernel.compute, kernel.destroy);
  tf.TF_RegisterKernelBuilder(op, b, status);
}
