/* Prints the result of horovod_init and of a call after it, and checks that the program's signals are its own. */
#include <signal.h>
#include <stdio.h>

#include "gorovod.h"

int main(void) {
  bool ok = horovod_init(NULL, 0, NULL, NULL, 0);
  if (ok) {
    printf("rank %d of %d\n", horovod_rank(), horovod_size());
    horovod_shutdown();
    return 0;
  }
  struct sigaction fault;
  sigaction(SIGSEGV, NULL, &fault);
  printf("refused: %s\n", gorovod_last_error());
  printf("rank %d, initialized %d, handler %d\n", horovod_rank(), horovod_is_initialized(), fault.sa_handler != SIG_DFL);
  horovod_shutdown();
  return 3;
}
