package doctor

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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

func askGPU(python string) (string, int) {
	var out, errs bytes.Buffer
	code := Main("gorovod doctor", []string{"--gpu", "--python", python}, []string{"SEEN=by it"}, &out, &errs, nil)
	return out.String() + errs.String(), code
}

func TestGPU(t *testing.T) {
	out, code := askGPU(fakePython(t, `echo "$SEEN: $1 $3"; echo gorovod has answered >&2`))
	want := ""
	for _, p := range parts {
		want += "by it: -c " + p.name + "\n"
	}
	if out != want || code != 0 {
		t.Errorf("code %d: %s", code, out)
	}
}

// A Python that cannot make a report costs no time, and is named.
func TestGPUWithoutAPackage(t *testing.T) {
	for python, says := range map[string]string{
		fakePython(t, "echo a trace >&2; echo 'No module named horovod' >&2; exit 1"): "cannot say what it has: " +
			"it has ended (exit status 1); it said: No module named horovod: is gorovod's wheel installed there?",
		"no-such-python":     "no Python called no-such-python: --python PROGRAM names another one",
		"/no/such/python":    "no Python called /no/such/python: --python PROGRAM names another one",
		t.TempDir():          "it cannot be run",
		fakePython(t, ":"):   "it has answered nothing, so it is no Python",
		fakePython(t, "cat"): "it has answered nothing, so it is no Python",
	} {
		if out, code := askGPU(python); !strings.Contains(out, says) || !strings.Contains(out, python) || code != 1 {
			t.Errorf("%s: code %d: %s", python, code, out)
		}
	}
}

// What a part has printed before it hangs or dies is in the report, as are the other parts.
func TestGPUWhosePartsFail(t *testing.T) {
	defer func(saved []part) { parts = saved }(slices.Clone(parts))
	for i := range parts {
		if parts[i].name == "jax" {
			parts[i].limit = 100 * time.Millisecond
		}
	}
	out, code := askGPU(fakePython(t, `case $3 in
		torch) echo "PyTorch: 2"; echo SIGSEGV: why >&2; echo ----- >&2; exit 2;;
		jax) printf "JAX: "; sleep 1000;;
		cuda) printf "CUDA's driver: "; echo gorovod calls cuInit of x >&2; kill -SEGV $$;;
		nccl) printf "NCCL: "; exit 3;;
		*) echo "the $3";; esac; echo gorovod has answered >&2`))
	const want = `the python
PyTorch: 2
WRONG: the part about PyTorch has ended (exit status 2); it said: SIGSEGV: why
JAX: not known
WRONG: the part about JAX has not ended within 100ms
CUDA's driver: not known
WRONG: the part about CUDA has ended (signal: segmentation fault); its last call into a library was cuInit of x
NCCL: not known
WRONG: the part about NCCL has ended (exit status 3)
Tensors of GPUs: not known, because of that
the trial
`
	if out != want || code != 0 {
		t.Errorf("code %d: %s", code, out)
	}
}

// A part that prints without end is cut off, and a program that ends early is noticed.
func TestGPUWhosePartsAreStrange(t *testing.T) {
	defer func(saved []part) { parts = saved }(parts)
	parts = parts[:3]
	out, code := askGPU(fakePython(t, `case $3 in
		torch) yes | head -c 3000000;;
		jax) printf "JAX: "; exit 0;; esac; echo "the $3"; echo gorovod has answered >&2`))
	const end = "WRONG: the part about PyTorch has printed 3000010 bytes, of which 1048576 are here\nJAX: not known\n" +
		"WRONG: the part about JAX has ended early (exit status 0)\n"
	if !strings.HasSuffix(out, end) || len(out) > 1<<20+1000 || code != 0 {
		t.Errorf("code %d: %s", code, out[max(0, len(out)-300):])
	}
}

// stuckReader is an output that nobody reads.
type stuckReader struct{ entered chan struct{} }

func (s stuckReader) Write([]byte) (int, error) {
	close(s.entered)
	select {}
}

// This program does not wait for a reader that does not read.
func TestNothingIsSaidToAStuckReader(t *testing.T) {
	out := &passed{to: stuckReader{make(chan struct{})}}
	go out.Write([]byte("x"))
	<-out.to.(stuckReader).entered
	out.say("the end\n")
}
