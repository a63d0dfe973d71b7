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
	"regexp"
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
	{2, "-mode staged"}, {3, "-mode staged -async"}, {1, "-mode nccl -async"}, {3, "-mode auto"},
	{3, "-mode auto -async"},
}

// mostAtOnce is the largest number of programs in one job. It is small, so that many jobs begin and end.
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

// TestWrongResult makes the stand-in compute a wrong result. The comparison must find it.
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

// TestDroppedWaits leaves out one wait, one record of an event, or one query of an event on rank 0. The stand-in must
// report a race, with any timing.
func TestDroppedWaits(t *testing.T) {
	dice := rand.New(rand.NewPCG(*seed, 1))
	for _, how := range []struct {
		arguments string
		calls     map[string][]int // by their numbers; there may be more, as queries go on until the event is reached
	}{
		{"-mode nccl", map[string][]int{"cuStreamWaitEvent": upTo(7), "cuEventRecord": upTo(14),
			"cuEventQuery": upTo(7)}},
		{"-mode nccl -async", map[string][]int{"cuStreamWaitEvent": upTo(20), "cuEventRecord": upTo(19)}},
		{"-mode staged", map[string][]int{"cuStreamWaitEvent": upTo(7), "cuEventRecord": upTo(21),
			"cuEventQuery": upTo(14)}},
		{"-mode auto", map[string][]int{"cuStreamWaitEvent": upTo(7), "cuEventRecord": upTo(16),
			"cuEventQuery": upTo(9)}},
		// Queries ask whether an output has been copied, so that its memory can be that of another output. From the
		// third query on, the process may already know that it has. The second of an operation's four records is of the
		// lane's event, for which only other process sets wait. The memory of late outputs may not be used again.
		{"-mode nccl -async -outputs", map[string][]int{"cuStreamWaitEvent": upTo(14),
			"cuEventRecord": {1, 3, 4, 5, 7, 8, 9, 11, 12}, "cuEventQuery": upTo(2)}},
	} {
		for _, function := range slices.Sorted(maps.Keys(how.calls)) {
			calls := how.calls[function]
			chosen := calls[dice.IntN(len(calls))]
			for _, k := range calls {
				if !*every && k != chosen {
					continue
				}
				t.Run(fmt.Sprintf("%s %d of %s", how.arguments, k, function), func(t *testing.T) {
					t.Parallel()
					delay := "STANDIN_DELAY=100"
					if strings.Contains(how.arguments, "-outputs") { // after a late answer other memory is used
						delay = "STANDIN_DELAY=0"
					}
					out, said, err := runRandomWith(t, 3, delay, append(strings.Fields(how.arguments), "-chain",
						"-programs", "7", "-during", fmt.Sprintf("%s:%d:skip", function, k))...)
					if err == nil || !strings.Contains(said, "race: ") {
						t.Errorf("%v, and no race is reported\n%s%s", err, said, out)
					}
				})
			}
		}
	}
}

// upTo returns the numbers from 1 to n.
func upTo(n int) (all []int) {
	for k := 1; k <= n; k++ {
		all = append(all, k)
	}
	return all
}

// TestFaults makes calls on rank 0 fail or hang, each in a job of its own: see inject.go in folder random.
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

// TestHangs makes a call hang on the thread of rank 0 that drives. A call of CUDA's driver hangs for ever, as after a
// fault of the device. A call of NCCL hangs until the communicator is aborted. The other ranks must name rank 0, and
// the job must end.
func TestHangs(t *testing.T) {
	dice := rand.New(rand.NewPCG(*seed, 3))
	for _, mode := range []string{"-mode nccl", "-mode auto", "-mode staged", "-mode nccl -async"} {
		wait := upTo(7)
		faults := []string{fmt.Sprintf("cuEventQuery:%d:hang", 1+dice.IntN(7))}
		if mode == "-mode nccl -async" {
			faults[0] = "ncclBroadcast:1:hang" // it holds the lock for which Comm.Ready waits
			wait = []int{1, 3, 4, 6, 7}        // the program's own thread makes the second and the fifth
		}
		faults = append(faults, fmt.Sprintf("cuStreamWaitEvent:%d:hang", wait[dice.IntN(len(wait))]))
		for _, fault := range faults {
			t.Run(mode+" "+fault, func(t *testing.T) {
				t.Parallel()
				out, said, err := runRandom(t, 3, append(strings.Fields(mode), "-chain", "-programs", "7", "-deadline",
					"1s", "-during", fault)...)
				for _, rank := range []string{"[1]<stderr>:", "[2]<stderr>:"} {
					named := regexp.MustCompile(regexp.QuoteMeta(rank) +
						".*rank 0 on host .* has not returned for [14]s")
					if err == nil || said != "" || !named.MatchString(out) {
						t.Errorf("%v; %s does not name rank 0\n%s%s", err, rank, said, out)
					}
				}
			})
		}
	}
}

// everyFault lists the faults of all calls that the carrier makes.
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
	for k := 1; k <= 12; k++ { // the device is out of memory
		lines = append(lines, fmt.Sprintf("cuMemAlloc_v2:%d:2", k), fmt.Sprintf("cuMemHostAlloc:%d:2", k))
	}
	for _, of := range []int{2, 3, 5, 8} { // the device is out of memory now and then
		lines = append(lines, fmt.Sprintf("cuMemAlloc_v2:~%d:2", of), fmt.Sprintf("cuMemHostAlloc:~%d:2", of),
			fmt.Sprintf("cuMemAlloc_v2:~%d:2,cuMemHostAlloc:~%d:2", of, of))
	}
	for _, f := range []string{"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclCommFinalize",
		"ncclCommDestroy", "ncclCommAbort", "ncclGroupStart", "ncclGroupEnd", "ncclAllReduce", "ncclBroadcast",
		"ncclReduce", "ncclAllGather", "ncclReduceScatter", "ncclSend", "ncclRecv",
	} {
		for k := 1; k <= 3; k++ {
			lines = append(lines, fmt.Sprintf("%s:%d:2", f, k))
			if f == "ncclCommAbort" || f == "ncclGetUniqueId" || f == "ncclGroupStart" { // an abort does not end these
				continue
			}
			lines = append(lines, fmt.Sprintf("%s:%d:hang", f, k))
		}
	}
	for _, f := range []string{"ncclCommInitRankConfig", "ncclAllReduce", "ncclBroadcast", "ncclReduce",
		"ncclAllGather", "ncclReduceScatter", "ncclSend", "ncclRecv"} {
		lines = append(lines, f+":1:stuck", f+":1:async=6", f+":2:async=6")
	}
	// These faults leave memory behind that nobody frees, so no job that looks for leaks may follow.
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(leaves(a), leaves(b)) })
	return lines
}

func leaves(fault string) int {
	if strings.Contains(fault, "Free") || strings.Contains(fault, "Destroy") {
		return 1
	}
	return 0
}

// runRandom runs a job of random programs, and returns its output and the stand-in's report.
func runRandom(t *testing.T, ranks int, arguments ...string) (output, report string, err error) {
	t.Helper()
	return runRandomWith(t, ranks, "STANDIN_DELAY=100", arguments...)
}

// runRandomWith is runRandom with the stand-in's delays.
func runRandomWith(t *testing.T, ranks int, delay string, arguments ...string) (output, report string, err error) {
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
		"STANDIN_MEETING="+folder, "STANDIN_REPORT="+said, delay, fmt.Sprint("STANDIN_SEED=", *seed))
	out, err := command.CombinedOutput()
	text, _ := os.ReadFile(said) // there is no file if nothing was found
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
