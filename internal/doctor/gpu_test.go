package doctor

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakePython stands in for an interpreter: a script of sh.
func fakePython(t *testing.T, script string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestGPU(t *testing.T) {
	ask := func(python string) (string, int) {
		var out, errs bytes.Buffer
		code := Main("gorovod doctor", []string{"--gpu", "--python", python}, []string{"SEEN=by it"}, &out, &errs, nil)
		return out.String() + errs.String(), code
	}
	out, code := ask(fakePython(t, `echo "$SEEN: $*"`))
	if out != "by it: -m horovod._gpu_report\n" || code != 0 {
		t.Errorf("code %d: %s", code, out)
	}
	out, code = ask(fakePython(t, "echo a trace >&2; echo 'No module named horovod' >&2; exit 1"))
	if !strings.Contains(out, "cannot say what it has (exit status 1: No module named horovod): is gorovod's wheel") ||
		code != 1 {
		t.Errorf("code %d: %s", code, out)
	}
	out, code = ask("no-such-python")
	if !strings.Contains(out, "no Python called no-such-python: --python PROGRAM names another one") || code != 1 {
		t.Errorf("code %d: %s", code, out)
	}
}
