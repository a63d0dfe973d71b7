//go:build cgo && linux

package gpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }

// TestPacking counts the calls for tensors that travel together. Each tensor is one call of NCCL, in few groups, and
// nothing is copied.
func TestPacking(t *testing.T) {
	for _, n := range []int{1, 10, 100} {
		out, said, err := runRandom(t, 2, "-mode", "nccl", "-pack", fmt.Sprint(n))
		want := fmt.Sprintf("%d tensors: ncclAllReduce %d, ncclGroupStart %d, cuMemcpyDtoDAsync_v2 0, "+
			"cuStreamWaitEvent %d,", n, n, min(1, n/2), n)
		// A log's batch may end between two of the tensors.
		twice := strings.Replace(want, "ncclGroupStart 1", "ncclGroupStart 2", 1)
		if err != nil || said != "" || !strings.Contains(out, want) && !strings.Contains(out, twice) {
			t.Errorf("%v\n%s%swant %s", err, said, out, want)
		}
	}
}

// TestOutOfMemory makes allocations fail on a rank that has joined: the first, the second, a later one that never
// comes, or all.
func TestOutOfMemory(t *testing.T) {
	for _, c := range []struct {
		fault, says string
		fails       bool
	}{
		{"cuMemAlloc_v2:1:2", "with one buffer of", false},
		{"cuMemAlloc_v2:2:2", "with one buffer of", false},
		{"cuMemAlloc_v2:9999:2", "", false},
		{"cuMemAlloc_v2:*:2", "out of memory", true},
	} {
		out, said, err := runRandom(t, 3, "-mode", "nccl", "-join", "-programs", "20", "-during", c.fault)
		if (err != nil) != c.fails || said != "" || !strings.Contains(out, c.says) || !c.fails &&
			strings.Count(out, "is out of memory: rank 0") != strings.Count(c.says, "one buffer") {
			t.Errorf("%s: %v\n%s%s", c.fault, err, said, out)
		}
	}
}

// TestFloat8 submits reductions of floats of 8 bits to an NCCL that cannot do them.
func TestFloat8(t *testing.T) {
	t.Setenv("STANDIN_NCCL_VERSION", "22304")
	out, said, err := runRandom(t, 2, "-mode", "nccl", "-programs", "100")
	named := strings.Contains(out, "of float8_e") && strings.Contains(out, "it needs NCCL 2.24")
	if err == nil || said != "" || !named {
		t.Errorf("%v\n%s%s", err, said, out)
	}
}

// TestDeadline makes rank 0 hang while a communicator is made: in a call that does not return, or in the background.
// All ranks must end, and the other ranks must name rank 0.
func TestDeadline(t *testing.T) {
	for fault, says := range map[string]string{
		"cuDeviceGetUuid_v2:1:hang":      "cuDeviceGetUuid of .*libcuda.so.1 there has not returned for 2s",
		"ncclCommInitRankConfig:1:stuck": "NCCL has not made the communicator after 2s",
	} {
		out, said, err := runRandom(t, 3, "-mode", "nccl", "-chain", "-programs", "7", "-deadline", "2s", "-during",
			fault)
		for _, rank := range []string{"[1]<stderr>:", "[2]<stderr>:"} {
			named := regexp.MustCompile(regexp.QuoteMeta(rank) + ".*rank 0 on host .*" + says)
			if err == nil || said != "" || !named.MatchString(out) {
				t.Errorf("%s: %v; %s does not say it\n%s%s", fault, err, rank, said, out)
			}
		}
	}
}
