package interpreter

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// run runs a script of sh as if it were an interpreter.
func run(t *testing.T, ctx context.Context, limit time.Duration, script string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p := Program{Python: file, Args: []string{"a"}, Env: []string{"SEEN=by it"}, Limit: limit, Stdout: &out}
	err := p.Run(ctx)
	return out.String(), err
}

func TestRun(t *testing.T) {
	for _, c := range []struct{ script, out, err string }{
		{`echo "$SEEN: $*"; echo gorovod has answered >&2`, "by it: a\n", ""},
		{"printf note: >&2; echo >&2; echo gorovod has answered >&2; yes noise | head -c 240000 >&2", "", ""},
		{"echo x; echo a warning >&2", "x\n", "has ended early (exit status 0); it said: a warning"},
		{"echo x; echo a trace >&2; echo the end >&2; echo ----- >&2; exit 3", "x\n",
			"has ended (exit status 3); it said: the end"},
		{"kill -SEGV $$", "", "has ended (signal: segmentation fault)"},
		{"echo gorovod calls cuInit of x >&2; echo SIGSEGV: why >&2; echo at 5 >&2; exit 2", "",
			"has ended (exit status 2); its last call into a library was cuInit of x; it said: SIGSEGV: why"},
		{"echo gorovod calls cuInit of x >&2; echo SIGBUS: why >&2; echo at 5 >&2; kill -QUIT $$", "",
			"has ended (SIGBUS: why); its last call into a library was cuInit of x"},
		{"echo a note >&2; kill -QUIT $$", "", "has ended (signal: quit); it said: a note"},
		{"yes noise | head -c 240000 >&2; echo gorovod calls dlopen of y >&2; exit 1", "",
			"has ended (exit status 1); its last call into a library was dlopen of y; it said: noise"},
	} {
		out, err := run(t, context.Background(), time.Minute, c.script)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if out != c.out || text != c.err {
			t.Errorf("%s: %q, %q", c.script, out, text)
		}
	}
}

// A program that hangs is killed with its children, and what it has printed is there.
func TestLimit(t *testing.T) {
	began := time.Now()
	out, err := run(t, context.Background(), 200*time.Millisecond, "echo x; sleep 1000 & sleep 1000")
	if out != "x\n" || err == nil || err.Error() != "has not ended within 200ms" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err = run(t, context.Background(), time.Minute, "sleep 1000 & exit 1"); err == nil {
		t.Error("exit 1 is no failure")
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err = run(t, ctx, time.Hour, "sleep 1000"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestNoInterpreter(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for file, says := range map[string]string{
		script:           "the interpreter that its first line names is missing",
		"no-such-python": ErrMissing.Error(), "/no/such/python": ErrMissing.Error(), t.TempDir(): "it cannot be run",
	} {
		p := Program{Python: file, Limit: time.Minute}
		if err := p.Run(context.Background()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
