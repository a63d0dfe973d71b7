/*
 * A rank that forks while the engine works on a tensor of the stand-in's device. The child calls functions of the
 * library, and ends by exit, like a worker of a data loader. The stand-in reports each call of CUDA's or NCCL's there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <gorovod.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../standin/abi.h"

static void check(int right, const char *what) {
  if (right) return;
  printf("%s: %s\n", what, gorovod_last_error());
  exit(1);
}

static gorovod_op sum(CUdeviceptr at, const int64_t *shape, CUstream stream) {
  gorovod_op op;
  memset(&op, 0, sizeof op);
  op.size = sizeof op;
  op.type = GOROVOD_ALLREDUCE;
  op.dtype = GOROVOD_UINT8;
  op.reduce_op = GOROVOD_SUM;
  op.ndim = 1;
  op.shape = shape;
  op.prescale = op.postscale = 1;
  op.input = (void *)(uintptr_t)at;
  op.output = (void *)(uintptr_t)at;
  op.device_stream = (uintptr_t)stream;
  return op;
}

static void be_child(const gorovod_op *op, int64_t handle, CUstream stream) {
  alarm(20);
  int64_t mine;
  gorovod_takes_device(0);
  gorovod_enqueue(op, &mine);
  gorovod_wait(handle, 1000);
  gorovod_await_on_stream(handle, (uintptr_t)stream);
  gorovod_release(handle);
  gorovod_free_on_device(0, (void *)op->input);
  gorovod_cuda_report(2, 2);
  gorovod_nccl_report(2, 2);
  horovod_nccl_built();
  horovod_shutdown();
  exit(0);
}

int main(void) {
  enum { BYTES = 1000 };
  const int64_t shape[] = {BYTES};
  check(horovod_init(NULL, 0, NULL, NULL, 0), "init");
  CUcontext context;
  CUstream stream;
  CUdeviceptr memory;
  check(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, horovod_local_rank()) == 0 &&
            cuCtxPushCurrent_v2(context) == 0 && cuStreamCreate(&stream, 1) == 0 && cuMemAlloc_v2(&memory, BYTES) == 0,
        "the device");
  for (int round = 0; round < 20; round++) {
    check(standinLaunch(STANDIN_FILL, memory, 0, BYTES, round, 2000, stream) == 0, "a kernel");
    gorovod_op op = sum(memory, shape, stream);
    op.device = horovod_local_rank();
    int64_t handle;
    check(gorovod_enqueue(&op, &handle) == GOROVOD_OK, "enqueue");
    if (round % 5 == 0) fflush(stdout);
    pid_t child = round % 5 == 0 ? fork() : 0;
    if (child == 0 && round % 5 == 0) be_child(&op, handle, stream);
    int status = 0;
    check(gorovod_wait(handle, 20000) == GOROVOD_OK, "wait");
    check(gorovod_await_on_stream(handle, (uintptr_t)stream) == GOROVOD_OK, "await");
    check(child == 0 || (waitpid(child, &status, 0) == child && status == 0), "the child");
    unsigned char sums[BYTES];
    check(cuStreamSynchronize(stream) == 0 && cuMemcpyDtoH_v2(sums, memory, BYTES) == 0, "a copy");
    for (int i = 0; i < BYTES; i++) check(sums[i] == round * horovod_size(), "a sum");
  }
  horovod_shutdown();
  puts("forked 4 times");
  return 0;
}
