//go:build cgo && linux

package gpu

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	programs = flag.Int("programs", 400, "how many random programs on the stand-in")
	seed     = flag.Uint64("seed", 1, "of the random programs")
	every    = flag.Bool("every", false, "drop each wait in turn, and let each call fail; else a few of them")
)

// jobs are the ways in which random programs run.
var jobs = []struct {
	ranks     int
	arguments string
}{
	{2, "-mode auto"}, {3, "-mode nccl"}, {4, "-mode nccl"}, {3, "-mode nccl -async"}, {4, "-mode nccl -async"},
	{2, "-mode staged"}, {3, "-mode staged -async"}, {1, "-mode nccl -async"},
}

// mostAtOnce is how many programs one job runs, so that many jobs begin and end.
const mostAtOnce = 250

// TestRandomPrograms runs programs on the device and on the host, and compares the results: see folder random.
func TestRandomPrograms(t *testing.T) {
	t.Logf("%d programs from seed %d", *programs, *seed)
	left, next := *programs, *seed
	for i := 0; left > 0; i++ {
		job := jobs[i%len(jobs)]
		n := min(left, mostAtOnce, max(1, *programs/len(jobs)))
		arguments := append(strings.Fields(job.arguments), "-programs", fmt.Sprint(n), "-seed", fmt.Sprint(next))
		t.Run(fmt.Sprintf("%d ranks %v", job.ranks, arguments), func(t *testing.T) {
			t.Parallel()
			out, said, err := runRandom(t, job.ranks, arguments...)
			if err != nil || said != "" {
				t.Fatalf("%v\n%s%s", err, said, out)
			}
		})
		left, next = left-n, next+1
	}
}

// TestWrongResult lets the stand-in compute a wrong result. The comparison must find it.
func TestWrongResult(t *testing.T) {
	out, said, err := runRandom(t, 3, "-chain", "-programs", "7", "-during", "ncclAllReduce:2:wrong")
	if err == nil || said != "" || !strings.Contains(out, "ALLREDUCE of") || !strings.Contains(out, "differs") {
		t.Errorf("%v\n%s%s", err, said, out)
	}
	out, said, err = runRandom(t, 2, "-chain", "-programs", "7", "-mode", "auto", "-during", "ncclAllReduce:1:wrong")
	if err != nil || said != "" || !strings.Contains(out, "the trial of NCCL has a wrong result") {
		t.Errorf("in the trial: %v\n%s%s", err, said, out)
	}
}

// TestDroppedWaits leaves out one wait, one record of an event, or one look at an event on rank 0. The stand-in must
// report a race, whatever the timing.
func TestDroppedWaits(t *testing.T) {
	dice := rand.New(rand.NewPCG(*seed, 1))
	for _, how := range []struct {
		arguments string
		calls     map[string]int // so many at least; a look is repeated until the event is reached
	}{
		{"-mode nccl", map[string]int{"cuStreamWaitEvent": 7, "cuEventRecord": 14, "cuEventQuery": 7}},
		{"-mode nccl -async", map[string]int{"cuStreamWaitEvent": 14, "cuEventRecord": 14}},
		{"-mode staged", map[string]int{"cuStreamWaitEvent": 7, "cuEventRecord": 21, "cuEventQuery": 14}},
		{"-mode auto", map[string]int{"cuStreamWaitEvent": 7, "cuEventRecord": 16, "cuEventQuery": 9}},
	} {
		for _, function := range slices.Sorted(maps.Keys(how.calls)) {
			calls := how.calls[function]
			chosen := 1 + dice.IntN(calls)
			for k := 1; k <= calls; k++ {
				if !*every && k != chosen {
					continue
				}
				t.Run(fmt.Sprintf("%s %d of %s", how.arguments, k, function), func(t *testing.T) {
					t.Parallel()
					out, said, err := runRandom(t, 3, append(strings.Fields(how.arguments), "-chain", "-programs", "7",
						"-during", fmt.Sprintf("%s:%d:skip", function, k))...)
					if err == nil || !strings.Contains(said, "race: ") {
						t.Errorf("%v, and no race is reported\n%s%s", err, said, out)
					}
				})
			}
		}
	}
}

// TestFaults lets calls on rank 0 fail or hang, each in a job of its own: see inject.go in folder random.
func TestFaults(t *testing.T) {
	dice := rand.New(rand.NewPCG(*seed, 2))
	for _, mode := range []string{"-mode nccl", "-mode auto", "-mode nccl -async", "-mode staged"} {
		var lines []string
		for _, line := range everyFault() {
			if *every || dice.IntN(70) == 0 {
				lines = append(lines, line)
			}
		}
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "faults")
			if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			out, said, err := runRandom(t, 3, append(strings.Fields(mode), "-chain", "-programs", "7",
				"-faults", path)...)
			if n := strings.Count(out, ": met "); err != nil || said != "" || n != len(lines) {
				t.Errorf("%d of %d faults: %v\n%s%s", n, len(lines), err, said, out)
			}
			t.Logf("%d faults, of which %d were not met", len(lines), strings.Count(out, ": met 0"))
		})
	}
}

// everyFault is all that can happen to the calls that the carrier makes.
func everyFault() (lines []string) {
	for _, f := range []string{"cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode", "cuDeviceGetUuid_v2",
		"cuStreamCreateWithPriority", "cuStreamDestroy_v2", "cuStreamWaitEvent", "cuStreamIsCapturing",
		"cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventQuery", "cuMemAlloc_v2", "cuMemFree_v2",
		"cuMemHostAlloc", "cuMemFreeHost", "cuMemcpyDtoDAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
	} {
		for k := 1; k <= 12; k++ {
			lines = append(lines, fmt.Sprintf("%s:%d:700", f, k))
		}
	}
	for k := 1; k <= 12; k++ { // no memory is left
		lines = append(lines, fmt.Sprintf("cuMemAlloc_v2:%d:2", k), fmt.Sprintf("cuMemHostAlloc:%d:2", k))
	}
	for _, f := range []string{"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclCommFinalize",
		"ncclCommDestroy", "ncclCommAbort", "ncclGroupStart", "ncclGroupEnd", "ncclAllReduce", "ncclBroadcast",
		"ncclReduce", "ncclAllGather", "ncclReduceScatter", "ncclSend", "ncclRecv",
	} {
		for k := 1; k <= 3; k++ {
			lines = append(lines, fmt.Sprintf("%s:%d:2", f, k))
			if f == "ncclCommAbort" || f == "ncclGetUniqueId" { // nothing ends these
				continue
			}
			lines = append(lines, fmt.Sprintf("%s:%d:hang", f, k))
		}
	}
	for _, f := range []string{"ncclCommInitRankConfig", "ncclAllReduce", "ncclBroadcast", "ncclReduce",
		"ncclAllGather", "ncclReduceScatter", "ncclSend", "ncclRecv"} {
		lines = append(lines, f+":1:stuck", f+":1:async=6", f+":2:async=6")
	}
	return lines
}

// runRandom runs a job of random programs, and returns its output and the stand-in's report.
func runRandom(t *testing.T, ranks int, arguments ...string) (output, report string, err error) {
	t.Helper()
	launcher, err := filepath.Abs(filepath.Join(cmp.Or(os.Getenv("GOROVOD_TEST_BUILD"), "../../build"), "horovodrun"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(launcher); err != nil {
		t.Skip("horovodrun is not there: run make build first")
	}
	probePath(t) // builds the stand-in
	program, err := buildRandom()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	folder := t.TempDir()
	said := filepath.Join(folder, "report")
	command := exec.CommandContext(ctx, launcher, append([]string{"-np", fmt.Sprint(ranks), program}, arguments...)...)
	command.Env = append(os.Environ(), "LD_LIBRARY_PATH="+probe.folder, "HOROVOD_DYNAMIC_PROCESS_SETS=1",
		"STANDIN_MEETING="+folder, "STANDIN_REPORT="+said, "STANDIN_DELAY=100", fmt.Sprint("STANDIN_SEED=", *seed))
	out, err := command.CombinedOutput()
	text, _ := os.ReadFile(said) // there is none where nothing was found
	return string(out), string(text), err
}

// buildRandom builds the program of folder random beside the stand-in.
var buildRandom = sync.OnceValues(func() (string, error) {
	program := filepath.Join(probe.folder, "random")
	if out, err := exec.Command("go", "build", "-o", program, "./random").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
})
