package chaos

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// heartbeat is the shortest time-out of the heartbeats that a job may have.
const heartbeat = 5 * time.Second

// TestChaos injects faults at random. At any time it spares one worker that holds the
// state, so that the state is never lost.
func TestChaos(t *testing.T) {
	j := start(t, theSeed(t), []string{"-np", "4", "--min-np", "1", "--max-np", "6", "--blacklist-cooldown-range", "1",
		"2"}, []string{"GOROVOD_HEARTBEAT_SECONDS=5"})
	j.await("the first commits", func() bool { return len(j.veterans()) >= 4 })
	j.torment(j.strike)
	j.hosts("127.0.0.1:4", "127.0.0.2:4")
	j.await("all six are together again", func() bool { return j.together() >= 6 })
	j.finish()
}

// theSeed is the seed of this run, which it logs.
func theSeed(t *testing.T) uint64 {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	return s
}

// torment injects faults for the time of -chaos.for.
func (j *job) torment(strike func()) {
	for end := time.Now().Add(*duration); time.Now().Before(end); {
		time.Sleep(min(time.Duration(j.rng.ExpFloat64()*float64(*mean)), 5**mean))
		select {
		case <-j.done:
			j.t.Fatal("the job has ended")
		default:
			strike()
		}
		if idle := time.Since(j.last); idle > stalled {
			j.t.Fatalf("no commit was made for %v", idle)
		}
	}
}

// together is the number of workers in the newest world, if all of these hold a commit.
func (j *job) together() int {
	sizes := map[int]int{}
	for _, w := range j.veterans() {
		sizes[w.size]++
	}
	for size, n := range sizes {
		if n == size {
			return n
		}
	}
	return 0
}

// veterans are the workers that live and hold a commit.
func (j *job) veterans() (list []*journal) {
	for _, w := range j.journals() {
		if w.newest >= 0 && w.done == "" && j.alive(w) {
			list = append(list, w)
		}
	}
	return list
}

// risks are the recent faults of workers and hosts. They tell which workers are sound.
type risks struct {
	// blamed is, for each host, the time until which another failure may cost the whole host.
	blamed map[string]time.Time
	// until is the time until which a worker or a host is out of order. Only a later commit shows that it is a member
	// again.
	until     map[int]time.Time
	hostUntil map[string]time.Time
}

func newRisks() risks {
	return risks{blamed: map[string]time.Time{}, until: map[int]time.Time{}, hostUntil: map[string]time.Time{}}
}

// sound lists the workers on whose state the job can rely.
func (j *job) sound() (list []*journal) {
	for _, w := range j.veterans() {
		offered := false
		for _, line := range j.offered {
			offered = offered || strings.HasPrefix(line, w.host+":")
		}
		if offered && w.at.After(j.until[w.pid]) && w.at.After(j.hostUntil[w.host]) {
			list = append(list, w)
		}
	}
	return list
}

// strike injects one fault.
func (j *job) strike() {
	spared := j.spare()
	if spared == nil {
		return
	}
	switch k := j.rng.IntN(10); {
	case k < 8:
		j.strikeWorkers(spared, k)
	case k < 9:
		j.faults["slots"]++
		if spared.host == "127.0.0.1" {
			j.hosts("127.0.0.1:4", "127.0.0.2:1")
		} else {
			j.hosts("127.0.0.2:4")
		}
	default:
		j.faults["all slots"]++
		j.hosts("127.0.0.1:4", "127.0.0.2:4")
	}
}

// spare chooses the worker that the next fault spares; nil: inject no fault now.
func (j *job) spare() *journal {
	sound := j.sound()
	if len(sound) == 0 {
		j.faults["waited"]++
		return nil
	}
	return sound[j.rng.IntN(len(sound))]
}

// strikeWorkers injects one of the eight faults of worker processes, the k-th.
func (j *job) strikeWorkers(spared *journal, k int) {
	victim := func(risky time.Duration) *journal {
		veterans := j.veterans()
		w := veterans[j.rng.IntN(len(veterans))]
		// Two failures on its host would cost the spared worker its place.
		if w.pid == spared.pid || w.host == spared.host && (time.Now().Before(j.blamed[w.host]) || risky > 0) {
			return nil
		}
		return w
	}
	switch {
	case k < 5:
		if w := victim(0); w != nil {
			j.kill(w)
		}
	case k < 6: // several at once
		for range 3 {
			if w := victim(0); w != nil {
				j.kill(w)
			}
		}
	default:
		pause := time.Duration(j.rng.ExpFloat64() * float64(time.Second))
		risky := time.Duration(0)
		if pause > time.Second {
			pause += 2*heartbeat + 2*time.Second // so long that it is given up
			risky = pause
		}
		if w := victim(risky); w != nil {
			j.faults["stop"]++
			j.pause(w.pid, pause)
			j.until[w.pid] = time.Now().Add(pause)
			j.blame(w.host, pause)
		}
	}
}

// pause stops a process for a while.
func (j *job) pause(pid int, pause time.Duration) {
	if syscall.Kill(pid, syscall.SIGSTOP) == nil {
		time.AfterFunc(pause, func() { syscall.Kill(pid, syscall.SIGCONT) })
	}
}

// blame notes that workers of a host may count as failed within a time, and that the host cools down after that.
func (j *job) blame(host string, within time.Duration) {
	if until := time.Now().Add(within + 4*time.Second); until.After(j.blamed[host]) {
		j.blamed[host] = until
	}
}

func (j *job) kill(w *journal) {
	if syscall.Kill(w.pid, syscall.SIGKILL) == nil {
		j.faults["kill"]++
		j.kills = append(j.kills, time.Now())
		j.blame(w.host, 0)
	}
}
