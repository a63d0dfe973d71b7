package hvd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

// The only worker of a job changes the hosts that are discovered. It hears of the two new workers at once, before it
// commits. Both have joined after one reset, although one comes later.
func TestHostsUpdated(t *testing.T) {
	run, err := filepath.Abs("../build/horovodrun")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(run); err != nil {
		t.Skip("build/horovodrun is not there: run make build first")
	}
	dir := t.TempDir()
	offer(dir, "localhost:1")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, run, "-np", "1", "--reset-limit", "1", "--host-discovery-script",
		"cat "+filepath.Join(dir, "hosts"), os.Args[0])
	cmd.Env = append(os.Environ(), "HVD_TEST_RANK=grow", "HVD_TEST_DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func offer(dir, hosts string) error {
	next := filepath.Join(dir, "next")
	if err := os.WriteFile(next, []byte(hosts+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, "hosts"))
}

// listener is a state that hears of changes of the hosts.
type listener struct{ heard chan hvd.HostUpdate }

func (*listener) Save()                      {}
func (*listener) Restore()                   {}
func (*listener) Sync(context.Context) error { return nil }

func (l *listener) OnHostsUpdated(_ time.Time, update hvd.HostUpdate) { l.heard <- update }

// grow is a worker of TestHostsUpdated.
func grow(ctx context.Context) error {
	worker := os.Getenv("GOROVOD_ELASTIC_WORKER")
	if worker == "2" {
		time.Sleep(300 * time.Millisecond)
	}
	if rank := os.Getenv("HOROVOD_RANK"); rank != worker {
		return fmt.Errorf("worker %s has been told to be rank %s", worker, rank)
	}
	if size := os.Getenv("HOROVOD_SIZE"); (size == "1") != (worker == "0") || worker != "0" && size != "3" {
		return fmt.Errorf("worker %s has been told that the job has %s workers", worker, size)
	}
	if err := hvd.Init(); err != nil {
		return err
	}
	defer hvd.Shutdown()
	state := &listener{make(chan hvd.HostUpdate, 8)}
	calls := 0
	return hvd.RunElastic(ctx, state, func(ctx context.Context, e *hvd.Elastic) error {
		if calls++; calls > 1 || worker != "0" {
			if hvd.Size() != 3 {
				return fmt.Errorf("worker %s trains in a world of %d", worker, hvd.Size())
			}
			return nil
		}
		if err := offer(os.Getenv("HVD_TEST_DIR"), "localhost:3"); err != nil {
			return err
		}
		if update := <-state.heard; update != hvd.HostsAdded {
			return fmt.Errorf("the change of the hosts was announced as %v", update)
		}
		err := e.Commit(ctx)
		if !errors.Is(err, hvd.ErrHostsUpdated) {
			return fmt.Errorf("the commit after the announcement returns %w", err)
		}
		return err
	})
}
