/*
 * A rank of gorovod bench over MPI.
 *
 *     mpirun -np N rank SOCKET FLOATS
 *
 * It connects to the conductor's SOCKET, and obeys orders until the conductor
 * closes the connection. An order is a line
 *
 *     run MODE SIZE,SIZE,... REPETITIONS INNER
 *
 * with sizes in floats. The answer is "ok" and the nanoseconds of each
 * repetition, or "error" and the reason. FLOATS is the length of the longest
 * tensor. Lists of tensors (mode async) are reduced by one blocking call after
 * another: MPI negotiates nothing, so that is its fastest way.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

enum { MAX_TENSORS = 4096, MAX_REPETITIONS = 4096 };

static int rank, size;
static float *large;                  /* the tensor of every allreduce */
static float *list;                   /* the tensors of the latest list, one after another */
static size_t list_room;
static float *tensors[MAX_TENSORS];
static int counts[MAX_TENSORS];
static int64_t times[MAX_REPETITIONS];

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static float *zeros(size_t n) {
  float *p = NULL;
  if (posix_memalign((void **)&p, 4096, n * sizeof *p) != 0) {
    fprintf(stderr, "no memory for %zu floats\n", n);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (size_t i = 0; i < n; i++) ((volatile float *)p)[i] = 0; /* touches every page, so that the kernel maps it now */
  return p;
}

static void run(int n) {
  for (int i = 0; i < n; i++) MPI_Allreduce(MPI_IN_PLACE, tensors[i], counts[i], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Sets tensors and counts, and returns how many tensors there are; 0 if sizes is not a valid list. */
static int prepare(const char *mode, char *sizes) {
  int n = 0;
  size_t sum = 0;
  for (char *rest, *word = strtok_r(sizes, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
    if (n == MAX_TENSORS || (counts[n] = atoi(word)) < 1) return 0;
    sum += (size_t)counts[n++];
  }
  if (strcmp(mode, "allreduce") == 0) {
    tensors[0] = large;
    return n == 1;
  }
  if (sum > list_room) {
    free(list);
    list = zeros(sum);
    list_room = sum;
  }
  sum = 0;
  for (int i = 0; i < n; i++) {
    tensors[i] = list + sum;
    sum += (size_t)counts[i];
  }
  return n;
}

/* Runs once on numbers whose sum is known, to check the result. Leaves zeros in the tensors. */
static int verify(int n) {
  float want = (float)(size * (size + 1) / 2);
  int right = 1;
  for (int i = 0; i < n; i++) tensors[i][0] = tensors[i][counts[i] - 1] = (float)(rank + 1);
  run(n);
  for (int i = 0; i < n; i++) {
    right = right && tensors[i][0] == want && tensors[i][counts[i] - 1] == want;
    tensors[i][0] = tensors[i][counts[i] - 1] = 0;
  }
  return right;
}

static void obey(char *line, FILE *answers) {
  char mode[32];
  int at = 0, repetitions = 0, inner = 0, used = 0;
  if (sscanf(line, "run %31s %n", mode, &at) != 1) at = (int)strlen(line);
  char *sizes = line + at, *end = strchr(sizes, ' ');
  if (!end || sscanf(end, "%d %d%n", &repetitions, &inner, &used) != 2 || repetitions < 1 || repetitions > MAX_REPETITIONS || inner < 1) {
    fprintf(answers, "error it is no order\n");
    return;
  }
  *end = 0;
  int n = prepare(mode, sizes);
  if (n == 0) {
    fprintf(answers, "error the sizes make no sense\n");
    return;
  }
  if (!verify(n)) {
    fprintf(answers, "error the sum is wrong\n");
    return;
  }
  for (int i = 0; i < repetitions; i++) {
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t start = now();
    for (int j = 0; j < inner; j++) run(n);
    times[i] = now() - start;
  }
  fprintf(answers, "ok");
  for (int i = 0; i < repetitions; i++) fprintf(answers, " %lld", (long long)times[i]);
  fprintf(answers, "\n");
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (argc != 3 || strlen(argv[1]) >= sizeof address.sun_path) {
    fprintf(stderr, "usage: %s SOCKET FLOATS\n", argv[0]);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  strcpy(address.sun_path, argv[1]);
  large = zeros((size_t)atol(argv[2]));
  int control = socket(AF_UNIX, SOCK_STREAM, 0);
  if (control < 0 || connect(control, (struct sockaddr *)&address, sizeof address) != 0) {
    perror(argv[1]);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  FILE *orders = fdopen(control, "r"), *answers = fdopen(control, "w");
  fprintf(answers, "hello %d\n", rank);
  fflush(answers);
  char *line = NULL;
  size_t room = 0;
  while (getline(&line, &room, orders) > 0) {
    obey(line, answers);
    fflush(answers);
  }
  MPI_Finalize();
  return 0;
}
