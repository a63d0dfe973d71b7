package tablefile

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/failpoint"
	"github.com/gorovod/gorovod/internal/core/slots"
	"github.com/gorovod/gorovod/internal/core/table"
)

// TestMain saves again and again if this process is the one that TestKilledAmidASave kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SAVES_UNTIL_KILLED"); dir != "" {
		if err := saveUntilKilled(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// saveUntilKilled saves a table, all of whose numbers are 1, then 2, and so on. It prints each number once it is saved.
func saveUntilKilled(dir string) error {
	o := table.Options{Name: "t", Dim: 4, Init: table.Zeros, Optimizer: table.SGD}
	keys, gradients := make([]int64, 20_000), slices.Repeat([]float32{-1}, 80_000)
	for i := range keys {
		keys[i] = int64(i)
	}
	tb, owners := table.New(o), slots.Assign(2)
	var u table.Update
	for n := uint64(1); ; n++ {
		u.Begin(tb)
		if err := u.Add(keys, gradients); err != nil {
			return err
		}
		if _, err := u.Apply(1, len(keys)); err != nil {
			return err
		}
		progress, _ := tb.Progress()
		m := &Manifest{Table: o, Progress: progress}
		for member := range 2 {
			f, err := WriteRows(dir, FileName(n, member), tb, owners.Owned(member), never)
			if err != nil {
				return err
			}
			m.Files = append(m.Files, *f)
		}
		if err := Commit(dir, m); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// TestKilledAmidASave kills a process with SIGKILL while it saves. The last save that it has reported is whole, or the
// one after it. With the build tag failpoints it is killed in each phase, otherwise at some moment.
func TestKilledAmidASave(t *testing.T) {
	phases := slices.Repeat([]string{""}, 10)
	if failpoint.Enabled {
		phases = append(phases, "save rows=kill#5000", "save rows=kill#7000", "save manifest=kill#2", "saved=kill#2")
	}
	for _, phase := range phases {
		dir := t.TempDir()
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "SAVES_UNTIL_KILLED="+dir, "GOROVOD_FAILPOINT="+phase)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		reported := 0
		for lines := bufio.NewScanner(out); lines.Scan(); {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatalf("%v: %q", err, lines.Text())
			}
			if reported = n; reported == 1 && phase == "" {
				time.AfterFunc(time.Duration(rand.IntN(300))*time.Millisecond, func() { child.Process.Kill() })
			}
		}
		if err := child.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("%s: %v", phase, err)
		}
		checkSave(t, dir, phase, reported)
	}
}

// checkSave checks that the save of a directory is the reported one, or the next.
func checkSave(t *testing.T, dir, phase string, reported int) {
	s, err := Open(dir)
	if err != nil {
		t.Fatalf("%s: %v", phase, err)
	}
	number := int(s.Progress.Updates)
	tb := table.New(s.Table)
	defer tb.Close()
	if err := s.Read(slots.Assign(1).Owned(0), tb, never); err != nil {
		t.Fatalf("%s: %v", phase, err)
	}
	if number != reported && number != reported+1 || tb.Len() != 20_000 {
		t.Errorf("%s: save %d of %d rows, and save %d has been reported", phase, number, tb.Len(), reported)
	}
	tb.All(func(r *table.Row) bool {
		if r.Weights[0] != float32(number) || r.Weights[3] != float32(number) {
			t.Errorf("%s: key %d has %v, the save is number %d", phase, r.Key, r.Weights, number)
		}
		return !t.Failed()
	})
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 2+4+1 {
		t.Errorf("%s: %d files are left", phase, len(left))
	}
}
