#include <stddef.h>

#include "libmpi.h"

typedef void *handle;
#define RUN gv_run_pointer
#include "calls.h"
