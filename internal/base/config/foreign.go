package config

import (
	"slices"
	"strings"
)

// Reasons that several variables share.
const (
	noFusion  = "there is no fusion buffer on a GPU: NCCL gets a batch as one group"
	noNVTX    = "there are no NVTX ranges"
	oneStream = "each process set has one stream and one communicator"
	ncclReads = "NCCL itself reads it"
	noSpark   = "the tasks of horovod.spark hand on the environment of their executors"
	manyHosts = "a hint for jobs on several hosts; on one, Horovod ignores it too"
	buildTime = "for the compilation of Horovod, which does not look at it later; nothing is compiled here"
)

// foreign are Horovod's variables that have no effect here.
var foreign = slices.Concat(
	[]Knob{
		{Name: "HOROVOD_ENABLE_XLA_OPS", Class: Meaningless,
			Doc: "there are no XLA operations; anything but 0 gets a warning",
			setting: note(truth, "there are no XLA operations, so this has no effect. In TensorFlow, compile the "+
				"functions around a collective: one inside of jit_compile=True is XLA's error")},
		{Name: "DDL_OPTIONS", Class: Refused, Doc: "there is no DDL backend; any value is refused",
			setting: refuse(anything, "there is no DDL backend")},
	},
	meaningless("there is no background thread to bind: the thread that waits for an operation runs it, and a "+
		"goroutine, which has no thread of its own, runs what nobody waits for; bind the process, for instance "+
		"with taskset", "HOROVOD_THREAD_AFFINITY"),
	meaningless(noFusion, "HOROVOD_BATCH_D2D_MEMCOPIES"),
	meaningless(noNVTX, "HOROVOD_DISABLE_NVTX_RANGES"),
	meaningless(oneStream, "HOROVOD_NUM_NCCL_STREAMS"),
	meaningless(ncclReads, "NCCL_IB_DISABLE NCCL_SOCKET_IFNAME"),
	meaningless("Adasum's messages are cut where the transport needs it", "HOROVOD_ADASUM_MPI_CHUNK_SIZE"),
	meaningless("oneCCL is not used", "HOROVOD_CCL_CACHE"),
	meaningless(noSpark, "HOROVOD_SPARK_PYTHONPATH HOROVOD_SPARK_WORK_DIR"),
	meaningless("DBFSLocalStore reads what it finds", "DATABRICKS_FILE_AVAILABILITY_WAIT_TIMEOUT_SECS "+
		"DATABRICKS_FILE_AVAILABILITY_CHECK_INTERVAL_SECS"),
	[]Knob{{Name: "_HOROVOD_SECRET_KEY", Class: Meaningless, Secret: true,
		Doc: "the key of services that this launcher does not start"}},
	meaningless(buildTime,
		`HOROVOD_DEBUG HOROVOD_BUILD_ARCH_FLAGS HOROVOD_BUILD_CUDA_CC_LIST HOROVOD_CUDA_HOME HOROVOD_ROCM_HOME
		HOROVOD_NCCL_HOME HOROVOD_NCCL_INCLUDE HOROVOD_NCCL_LIB HOROVOD_NCCL_LINK HOROVOD_NVTX_INCLUDE
		HOROVOD_WITH_GLOO HOROVOD_WITH_MPI HOROVOD_WITH_TENSORFLOW HOROVOD_WITH_PYTORCH HOROVOD_WITH_MXNET
		HOROVOD_WITHOUT_GLOO HOROVOD_WITHOUT_MPI HOROVOD_WITHOUT_TENSORFLOW HOROVOD_WITHOUT_PYTORCH HOROVOD_WITHOUT_MXNET HOROVOD_WITHOUT_NVTX
		HOROVOD_GPU HOROVOD_GPU_OPERATIONS HOROVOD_GPU_ALLREDUCE HOROVOD_GPU_ALLGATHER HOROVOD_GPU_BROADCAST HOROVOD_GPU_ALLTOALL
		HOROVOD_GPU_REDUCESCATTER HOROVOD_ALLOW_MIXED_GPU_IMPL HOROVOD_CMAKE HOROVOD_SKIP_COMPILE HOROVOD_LOCAL_VERSION
		HOROVOD_MIXED_INSTALL HOROVOD_TEST_GPU MAKEFLAGS CCL_ROOT`),
)

// meaningless makes a knob for each name, all with the same reason.
func meaningless(why, names string) []Knob {
	var knobs []Knob
	for _, name := range strings.Fields(names) {
		knobs = append(knobs, Knob{Name: name, Class: Meaningless, Doc: why})
	}
	return knobs
}
