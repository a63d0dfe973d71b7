//go:build failpoints

// Package failpoint makes a rank fail at a named point of its own code:
//
//	GOROVOD_FAILPOINT=point=action[#n]
//
// The action happens when the rank passes the point for the n-th time (default: the first). The rank says so on stderr:
// "failpoint point action time", with the time in nanoseconds since 1970.
//
//	kill, exit, panic, stop   stop is SIGSTOP
//	emfile                    the process can open no more descriptors
//	corrupt                   damages words of shared memory that matter at this point, or
//	                          data for other ranks, as GOROVOD_SEED chooses
//	cut                       runs GOROVOD_CUT, a command that cuts this host off
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

// Enabled: this build has failpoints.
const Enabled = true

// plan is the fault from the environment, read when the first point is passed.
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
	shared = map[string][][]byte{}
)

// Share offers words that other processes share, for the action corrupt. what names the words. The last offer counts.
func Share(what string, words ...[]byte) {
	mu.Lock()
	defer mu.Unlock()
	shared[what] = words
}

// targets are the words that matter at each point.
var targets = map[string][]string{
	"measure":    {"counters"},
	"negotiated": {"board", "cards", "mailboxes"},
	"ahead":      {"board", "cards", "mailboxes"},
	"pack":       {"counters", "board"},
	"collective": {"counters"},
	"broadcast":  {"counters"},
	"set":        {"lanes", "board", "cards"},
	"shutdown":   {"board", "mailboxes"},
}

// Scramble is a point at which the action corrupt changes p, which other ranks read.
func Scramble(name string, p []byte) {
	f := plan()
	if name != f.point || f.action != "corrupt" || f.left.Add(-1) != 0 {
		return
	}
	r := random()
	at := r.IntN(len(p))
	announce(f, fmt.Sprintf("byte %d of %d", at, len(p)))
	for i := at; i < min(at+4, len(p)); i++ {
		p[i] ^= byte(1 + r.IntN(255))
	}
}

// Here is a point at which the environment can make the rank fail.
func Here(name string) {
	f := plan()
	if name != f.point || f.action == "corrupt" && targets[name] == nil || f.left.Add(-1) != 0 {
		return
	}
	if f.action == "corrupt" {
		corrupt(f)
		return
	}
	announce(f, "")
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
	}
}

func announce(f *fault, what string) {
	fmt.Fprintf(os.Stderr, "failpoint %s %s %d %s\n", f.point, f.action, time.Now().UnixNano(), what)
}

func random() *rand.Rand {
	seed, _ := strconv.ParseUint(os.Getenv("GOROVOD_SEED"), 10, 64)
	return rand.New(rand.NewPCG(seed, 1))
}

// exhaust opens as many descriptors as it can, under a limit that the next open soon reaches. The limit stays above the
// number of open descriptors, because poll refuses to work otherwise.
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

// corrupt changes one of the words that matter, to a value that it could have or to one that it could not.
func corrupt(f *fault) {
	mu.Lock()
	defer mu.Unlock()
	r := random()
	kinds := targets[f.point]
	kind := kinds[r.IntN(len(kinds))]
	words := shared[kind]
	if len(words) == 0 {
		announce(f, "nothing")
		return
	}
	i := r.IntN(len(words))
	p := words[i]
	was := binary.NativeEndian.Uint64(p)
	is := was
	for is == was {
		switch r.IntN(4) {
		case 0:
			is = r.Uint64()
		case 1:
			is = was ^ uint64(r.Uint32())
		case 2:
			is = 0
		case 3:
			is = was - uint64(8*(1+r.IntN(100)))
		}
		if was == 0 && is == 0 {
			is = r.Uint64()
		}
	}
	announce(f, fmt.Sprintf("%s word %d: %#x becomes %#x", kind, i, was, is))
	binary.NativeEndian.PutUint64(p, is)
}
