/*
 * One process of MPI. It calls horovod_init_multi_comm with MPI's world and each half of it, as a program in C does,
 * and prints "place c rank R of N set S sum T" for scripts/schedulers.sh.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "gorovod.h"

#define CHECK(what)                                                   \
  if (!(what)) {                                                      \
    printf("multi_comm.c:%d: %s: %s\n", __LINE__, #what, gorovod_last_error()); \
    MPI_Abort(MPI_COMM_WORLD, 1);                                     \
  }

int main(int argc, char **argv) {
  int level, process;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm comms[2] = {MPI_COMM_WORLD};
  MPI_Comm_split(MPI_COMM_WORLD, process % 2, process, &comms[1]);
  CHECK(horovod_init_multi_comm(comms, 2, NULL, NULL, 0));
  CHECK(horovod_rank() == process);
  CHECK(horovod_mpi_enabled());
  int set = horovod_comm_process_set((void *)(uintptr_t)comms[1]);
  CHECK(set > 0);
  printf("place c rank %d of %d set %d of %d\n", horovod_rank(), horovod_size(), set, horovod_process_set_size(set));
  fflush(stdout);
  horovod_shutdown();
  int sum = 1; /* the program can still use MPI */
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(sum >= 1);
  MPI_Comm_free(&comms[1]);
  MPI_Finalize();
  return 0;
}
