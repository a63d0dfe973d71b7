package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// befallAfter is the time after which a rank's trouble begins, during its work.
const befallAfter = 300 * time.Millisecond

// befall lets this process run out of something after befallAfter: with "memory CGROUP" it
// exceeds the limit of that cgroup, with "address space" it has none left. The returned
// function cancels that.
func befall(fault string) (cancel func()) {
	var group string
	switch {
	case fault == "":
		return func() {}
	case fault == "address space":
	default:
		fmt.Sscanf(fault, "memory %s", &group)
		if err := os.WriteFile(group, []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			fmt.Println("SKIP", err)
		}
	}
	t := time.AfterFunc(befallAfter, func() {
		fmt.Fprintf(os.Stderr, "failpoint work trouble %d\n", time.Now().UnixNano())
		if group == "" {
			syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20})
		}
		for hoard := [][]byte{}; ; {
			p := make([]byte, 16<<20)
			for i := 0; i < len(p); i += 4096 {
				p[i] = 1
			}
			hoard = append(hoard, p)
		}
	})
	return func() { t.Stop() }
}
