#include <stddef.h>

#include "libmpi.h"

typedef int handle;
#define RUN gv_run_int
#include "calls.h"
