package hvd_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/hvd"
)

// TestEveryLineOfALogIsJSON makes a real job log all that it can, and fail.
func TestEveryLineOfALogIsJSON(t *testing.T) {
	run, err := filepath.Abs("../build/horovodrun")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(run); err != nil {
		t.Skip("build/horovodrun is not there: run make build first")
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), run, "-np", "2", "--verbose", "--prefix-timestamp", "-x",
		"GOROVOD_LOG_FORMAT=json", os.Args[0])
	cmd.Env = append(os.Environ(), "HVD_TEST_RANK=log", "HOROVOD_LOG_LEVEL=debug")
	cmd.Stderr = &stderr
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 3 {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	from := map[string]int{}
	for lines := bufio.NewScanner(&stderr); lines.Scan(); {
		var line struct {
			Time                         time.Time
			Logger, Level, Host, Message string
			Program                      string
			Rank                         *int
			PID                          int
		}
		d := json.NewDecoder(strings.NewReader(lines.Text()))
		if err := d.Decode(&line); err != nil || d.More() {
			t.Errorf("no JSON: %s", lines.Text())
			continue
		}
		if line.Time.IsZero() || line.Logger != "gorovod" || line.Level == "" || line.Host == "" ||
			line.Message == "" || line.PID == 0 {
			t.Errorf("something is missing: %s", lines.Text())
		}
		if (line.Rank == nil) != (line.Program == "horovodrun") {
			t.Errorf("neither a rank's nor the launcher's: %s", lines.Text())
		}
		switch {
		case line.Rank == nil && strings.HasPrefix(line.Message, "root cause: rank 1 "):
			from["the cause"]++
		case line.Rank == nil:
			from["the launcher"]++
		case strings.HasPrefix(line.Message, "this rank's setting differs"):
			from["a warning"]++
		case line.Level == "debug":
			from["the engine"]++
		}
	}
	if from["the cause"] != 1 || from["the launcher"] == 0 || from["a warning"] != 1 || from["the engine"] == 0 {
		t.Errorf("lines: %v", from)
	}
}

// logAndFail is one rank's part: rank 1 has a setting that gives a warning, and fails.
func logAndFail() error {
	if os.Getenv("HOROVOD_RANK") == "1" {
		os.Setenv("HOROVOD_FUSION_THRESHOLD", "77")
	}
	if err := hvd.Init(); err != nil {
		return err
	}
	defer hvd.Shutdown()
	hvd.Barrier(context.Background()) // may fail: rank 1 may end before rank 0 sees the barrier done
	if hvd.Rank() == 1 {
		os.Exit(3)
	}
	hvd.Barrier(context.Background()) // rank 1 never comes to it
	return nil
}
