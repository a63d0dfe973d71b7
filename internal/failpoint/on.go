//go:build failpoints

// Package failpoint makes a rank fail at a named point of its own code:
//
//	GOROVOD_FAILPOINT=point=action[#n]
//
// acts when the point is passed for the n-th time (the first, if it is not said), and
// says so on stderr: "failpoint point action time", the time in nanoseconds since
// 1970. The actions are kill, exit, stop (SIGSTOP), panic, emfile (no descriptor can be
// opened any more), corrupt (random words of shared memory, from GOROVOD_SEED) and cut
// (GOROVOD_CUT, a command that cuts this host off).
package failpoint

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Enabled says whether this build has failpoints.
const Enabled = true

// plan is what the environment says, read when a point is passed for the first time.
var plan = sync.OnceValue(func() *fault {
	spec, n, _ := strings.Cut(os.Getenv("GOROVOD_FAILPOINT"), "#")
	f := new(fault)
	f.point, f.action, _ = strings.Cut(spec, "=")
	times, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		times = 1
	}
	f.left.Store(times)
	return f
})

type fault struct {
	point, action string
	left          atomic.Int64
}

var (
	mu     sync.Mutex
	shared [][]byte
)

// Share offers memory that other processes share, for the action corrupt.
func Share(p []byte) {
	mu.Lock()
	defer mu.Unlock()
	shared = append(shared, p)
}

// Here is a point at which the rank may be made to fail.
func Here(name string) {
	f := plan()
	if name != f.point || f.left.Add(-1) != 0 {
		return
	}
	fmt.Fprintf(os.Stderr, "failpoint %s %s %d\n", name, f.action, time.Now().UnixNano())
	switch f.action {
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "exit":
		os.Exit(7)
	case "stop":
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "panic":
		panic("failpoint " + name)
	case "emfile":
		exhaust()
	case "cut":
		exec.Command("sh", "-c", os.Getenv("GOROVOD_CUT")).Run()
	case "corrupt":
		corrupt()
	}
}

// exhaust opens what can be opened, under a limit that the next one reaches soon. The
// limit stays above what is open: poll refuses to work otherwise.
func exhaust() {
	const spare = 64
	f, err := os.Open(os.DevNull)
	if err != nil {
		return
	}
	n := uint64(f.Fd()) + spare
	syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
	for err == nil {
		_, err = syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	}
}

// corruptWords is how many words corrupt changes, and corruptReach among how many
// bytes from the start of one of the parts: what is first is used most.
const corruptWords = 100

var corruptReach = []int{256, 2 << 10, 16 << 10, 256 << 10, 4 << 20}

func corrupt() {
	mu.Lock()
	defer mu.Unlock()
	if len(shared) == 0 {
		return
	}
	seed, _ := strconv.ParseUint(os.Getenv("GOROVOD_SEED"), 10, 64)
	r := rand.New(rand.NewPCG(seed, 1))
	part := shared[r.IntN(len(shared))]
	part = part[:min(len(part), corruptReach[r.IntN(len(corruptReach))])]
	for range corruptWords {
		at := r.IntN(len(part)/4) * 4
		binary.NativeEndian.PutUint32(part[at:], r.Uint32())
	}
}
