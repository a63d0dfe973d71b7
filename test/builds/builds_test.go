// Package builds starts jobs whose programs come from two builds: this one, and one in which lines are changed.
package builds

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// edit is a change in the other build: in file, from is replaced by to.
type edit struct{ file, from, to string }

// build builds the launcher and the rank program into dir, from the checkout with edits.
func build(t *testing.T, dir string, edits ...edit) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	replaced := map[string]string{}
	for _, e := range edits {
		original := filepath.Join(root, e.file)
		text, err := os.ReadFile(original)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(text), e.from) != 1 {
			t.Fatalf("%s does not have %q once", e.file, e.from)
		}
		replaced[original] = filepath.Join(t.TempDir(), filepath.Base(e.file))
		write(t, replaced[original], strings.Replace(string(text), e.from, e.to, 1))
	}
	list, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	write(t, overlay, string(list))
	cmd := exec.Command("go", "build", "-overlay", overlay, "-ldflags=-s -w", "-o", dir+"/", "./cmd/gorovod",
		"./test/builds/rank")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// fails runs a launcher's job, which must fail soon. It returns the job's output.
func fails(t *testing.T, env []string, launcher string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, launcher, append([]string{"run"}, args...)...)
	cmd.Env, cmd.WaitDelay = append(os.Environ(), env...), time.Second
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Errorf("%s %q: %v, %v\n%s", launcher, args, err, ctx.Err(), out)
	}
	return string(out)
}

// says checks that a job's output has each of the lines.
func says(t *testing.T, out string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !regexp.MustCompile("(?m)" + line).MatchString(out) {
			t.Errorf("nothing says %q:\n%s", line, out)
		}
	}
}

// TestTwoBuilds lets two builds meet in each way that a job allows. Both ends name the difference.
func TestTwoBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds other programs")
	}
	ours, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	build(t, ours)
	build(t, other, edit{"internal/base/operation/table.go", `Name: "Scatter"`, `Name: "Another"`},
		edit{"internal/elastic/wire.go", "const Protocol = ", "const Protocol = 9"})
	messages := `has another build of gorovod, whose messages differ \([0-9a-f]{8}, the launcher's [0-9a-f]{8}\): ` +
		"install the same gorovod everywhere"
	version := `speaks protocol version 9\d+, the launcher \d+: install the same gorovod everywhere`
	t.Run("a rank", func(t *testing.T) {
		out := fails(t, nil, ours+"/gorovod", "-np", "2", "sh", "-c",
			`[ $HOROVOD_RANK = 1 ] && exec `+other+`/rank; exec `+ours+`/rank`)
		says(t, out, `\[0\]<stdout>:told: .*rank 1 on host \S+ `+messages,
			`\[1\]<stdout>:told: .*rank 1 on host \S+ `+messages, "root cause: (?s:.*)rank 1 on host .*"+messages)
	})
	t.Run("the launcher", func(t *testing.T) {
		out := fails(t, nil, other+"/gorovod", "-np", "2", ours+"/rank")
		says(t, out, `\[0\]<stdout>:told: .*`+messages, `\[1\]<stdout>:told: .*`+messages)
	})
	t.Run("a worker of an elastic job", func(t *testing.T) {
		out := fails(t, nil, ours+"/gorovod", "-np", "1", "--min-np", "1", other+"/rank")
		says(t, out, `\[0\]<stdout>:told: .*worker 0 `+version, "gorovod run: worker 0 "+version)
	})
	t.Run("a host", func(t *testing.T) {
		ssh := filepath.Join(t.TempDir(), "ssh")
		write(t, ssh, "#!/bin/sh\nwhile [ $1 != 198.18.0.1 ]; do shift; done\nshift\nexec sh -c \"$*\"\n")
		out := fails(t, []string{"GOROVOD_SSH=" + ssh}, ours+"/gorovod", "-np", "1", "-H", "198.18.0.1:1",
			"--remote-command", other+"/gorovod", "true")
		says(t, out, `198.18.0.1: \S+/other/gorovod there is gorovod \S+, and this is \S+`)
	})
}
