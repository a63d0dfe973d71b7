package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A worker that is stopped, given up and then continued disturbs no other worker. It
// cannot join the job any more, and ends.
func TestAStoppedWorkerIsGivenUp(t *testing.T) {
	j := start(t, 1, []string{"-np", "4", "--min-np", "2", "--max-np", "4"}, []string{"GOROVOD_HEARTBEAT_SECONDS=5"})
	j.await("the first commits", func() bool { return len(j.veterans()) == 4 })
	victim := j.veterans()[1]
	// Only the worker's process stops, not its supervisor.
	if err := syscall.Kill(victim.pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	j.await("the others go on without it, and a replacement has come", func() bool {
		with := 0
		for _, w := range j.veterans() {
			if w.size == 4 && w.pid != victim.pid && len(w.steps) > 1 || w.worker >= 4 {
				with++
			}
		}
		return with >= 4
	})
	syscall.Kill(victim.pid, syscall.SIGCONT)
	j.await("it is gone", func() bool { return !j.alive(victim) })
	j.finish()
}

// When the launcher is killed, the workers end by themselves, and rank 0 keeps the last
// commit on its disk. A job that is started again goes on from there.
func TestTheLauncherDies(t *testing.T) {
	checkpoints := filepath.Join(t.TempDir(), "checkpoints")
	env := []string{"GOROVOD_CHECKPOINT_DIR=" + checkpoints, "GOROVOD_CHECKPOINT_EVERY=1000000"}
	j := start(t, 1, []string{"-np", "3", "--min-np", "2", "--max-np", "3"}, env)
	j.await("the first commits", func() bool { return len(j.veterans()) == 3 })
	workers := j.veterans()
	if err := j.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-j.done
	end := time.Now().Add(limit)
	for _, w := range workers {
		for j.alive(w) {
			if time.Now().After(end) {
				t.Fatalf("%s is left behind", w.name)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	// Nobody reads the workers' output any more, so their last words are in files.
	for _, w := range workers {
		name := filepath.Join(j.dir, "tmp", fmt.Sprintf("gorovod-%d-worker-%d.log", j.cmd.Process.Pid, w.worker))
		j.wait("the last words of "+w.name, func() bool {
			text, _ := os.ReadFile(name)
			return strings.Contains(string(text), "the launcher of this elastic job is gone")
		})
		os.Remove(name)
	}
	var newest int64
	for _, w := range j.journals() {
		if w.rank == 0 {
			newest = w.newest
		}
	}
	if files, _ := os.ReadDir(checkpoints); len(files) != 1 {
		t.Fatalf("%d checkpoints are there, want one: %v", len(files), files)
	}
	again := start(t, 2, []string{"-np", "2", "--min-np", "1", "--max-np", "2"}, env)
	again.await("a commit", func() bool { return len(again.veterans()) == 2 })
	for _, w := range again.veterans() {
		for n := range w.commits {
			if n <= newest {
				t.Errorf("%s made commit %d again, %d was kept", w.name, n, newest)
			}
		}
	}
	again.finish()
}

// Two workers of four die at once. The newest holder of the state may be one of them.
func TestTwoDieAtOnce(t *testing.T) {
	j := start(t, 1, []string{"-np", "4", "--min-np", "2", "--max-np", "4", "--blacklist-cooldown-range", "1",
		"2"}, nil)
	j.await("the first commits", func() bool { return len(j.veterans()) == 4 })
	for _, w := range j.veterans()[:2] {
		j.kill(w)
	}
	j.await("four train again", func() bool {
		n := 0
		for _, w := range j.veterans() {
			if w.size == 4 && (len(w.steps) > 1 || w.worker >= 4) {
				n++
			}
		}
		return n == 4
	})
	j.finish()
}

// Below min-np the job waits, and says so. It goes on when further slots come.
func TestBelowMin(t *testing.T) {
	j := start(t, 1, []string{"-np", "2", "--min-np", "2", "--max-np", "2"}, nil, "127.0.0.1:2")
	j.await("the first commits", func() bool { return len(j.veterans()) == 2 })
	victim := j.veterans()[1]
	j.kill(victim)
	j.await("it says that it waits", func() bool { return strings.Contains(j.out.String(), "waiting for others") })
	j.hosts("127.0.0.1:3")
	j.await("two train again", func() bool { return len(j.veterans()) == 2 })
	j.finish()
}

// If the job has a single worker, a process set with this rank is the world. That holds for a job that begins with one
// worker and for a job that has lost all others. When more workers come, the set is a set again.
func TestASetBecomesTheWorld(t *testing.T) {
	j := start(t, 1, []string{"-np", "1", "--min-np", "1", "--max-np", "3", "--blacklist-cooldown-range", "1", "2"},
		nil, "127.0.0.1:1")
	train := func(n int) {
		j.await(fmt.Sprintf("%d train", n), func() bool {
			all := j.veterans()
			for _, w := range all {
				if w.size != n {
					return false
				}
			}
			return len(all) == n
		})
	}
	train(1)
	j.hosts("127.0.0.1:3")
	train(3)
	j.hosts("127.0.0.1:1")
	train(1)
	j.finish()
}
