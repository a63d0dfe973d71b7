package output

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// copyFrom gives s everything from r.
func (s *Stream) copyFrom(r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			s.Pass(buf[:n])
		}
		if err != nil {
			s.Pass(nil)
			return
		}
	}
}

func streamed(text string, chunks func(io.Reader) io.Reader) (string, *Stream) {
	var out bytes.Buffer
	s := NewStream(&out, nil, 3, "stdout", false)
	s.copyFrom(chunks(strings.NewReader(text)))
	return out.String(), s
}

func whole(r io.Reader) io.Reader { return r }

func TestLinesArePrefixed(t *testing.T) {
	const p = "[3]<stdout>:"
	for in, want := range map[string]string{
		"":                 "",
		"a\n":              p + "a\n",
		"a\nb\n":           p + "a\n" + p + "b\n",
		"no newline":       p + "no newline\n",
		"a\n\nb":           p + "a\n" + p + "\n" + p + "b\n",
		"10%\r20%\rdone\n": p + "10%\r" + p + "20%\r" + p + "done\n",
		"dos\r\nline\r\n":  p + "dos\r\n" + p + "line\r\n",
		"\r\n\r\n":         p + "\r\n" + p + "\r\n",
		"end\r":            p + "end\r",
	} {
		for name, chunks := range map[string]func(io.Reader) io.Reader{"whole": whole, "bytes": iotest.OneByteReader} {
			if got, _ := streamed(in, chunks); got != want {
				t.Errorf("%q, %s: got %q, want %q", in, name, got, want)
			}
		}
	}
}

func TestLongLinesAreCut(t *testing.T) {
	for _, n := range []int{maxLine - 1, maxLine, maxLine + 1, 3*maxLine + 17} {
		got, _ := streamed(strings.Repeat("x", n)+"\nnext\n", whole)
		lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		content := 0
		for _, l := range lines[:len(lines)-1] {
			rest, ok := strings.CutPrefix(l, "[3]<stdout>:")
			if !ok || len(rest) > maxLine {
				t.Fatalf("%d: a line of %d bytes, prefix %v", n, len(rest), ok)
			}
			content += len(rest)
		}
		if content != n || lines[len(lines)-1] != "[3]<stdout>:next" {
			t.Errorf("%d bytes came out as %d, then %q", n, content, lines[len(lines)-1])
		}
	}
}

// However the bytes are cut, the same lines come out, each in one piece.
func TestChunksDoNotMatter(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var in strings.Builder
		for range r.IntN(40) {
			in.WriteString([]string{"a", "word", "\n", "\r", "\r\n", strings.Repeat("z", r.IntN(50000))}[r.IntN(6)])
		}
		want, _ := streamed(in.String(), whole)
		got, _ := streamed(in.String(), func(src io.Reader) io.Reader { return &ragged{src, r} })
		if got != want {
			t.Fatalf("seed %d: %d bytes give %d, want %d", seed, in.Len(), len(got), len(want))
		}
	}
}

type ragged struct {
	io.Reader
	r *rand.Rand
}

func (r *ragged) Read(p []byte) (int, error) {
	return r.Reader.Read(p[:1+r.r.IntN(len(p))])
}

func TestTimeStandsBeforeThePrefix(t *testing.T) {
	var out bytes.Buffer
	s := NewStream(&out, nil, 0, "stderr", true)
	s.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	s.copyFrom(strings.NewReader("x\n"))
	if got := out.String(); got != "Fri Jan  2 03:04:05 2026[0]<stderr>:x\n" {
		t.Errorf("got %q", got)
	}
}

func TestLastLines(t *testing.T) {
	var in strings.Builder
	for i := range 30 {
		in.WriteString(strings.Repeat("i", i+1) + "\n\n")
	}
	in.WriteString(strings.Repeat("w", 10*tailLineBytes) + "\n\xff\n")
	_, s := streamed(in.String(), whole)
	lines := strings.Split(s.Last(), "\n")
	if len(lines) != tailLines || len(lines[0]) != 23 || len(lines[8]) != tailLineBytes || lines[9] != "?" {
		t.Errorf("got %d lines: %q", len(lines), lines)
	}
}

// Of a crash the first lines are kept: registers come last.
func TestLastLinesOfACrash(t *testing.T) {
	const after = "SIGSEGV: segmentation violation\nPC=0x7f m=0\n"
	_, s := streamed("step 1\n"+after+strings.Repeat("rax 0x0\n", 30), whole)
	if got := s.Last(); got != after+strings.Repeat("rax 0x0\n", tailLines-3)+"rax 0x0" {
		t.Errorf("got %q", got)
	}
	const no = "fatal error: none, but a line like it\n"
	_, s = streamed(no+strings.Repeat("x\n", 30)+"terminate called\n", whole)
	if got := s.Last(); !strings.HasSuffix(got, "x\nterminate called") {
		t.Errorf("got %q", got)
	}
	_, s = streamed(after+strings.Repeat("x\n", 30)+string(traceback)+"\nValueError\n", whole)
	if got := s.Last(); !strings.HasSuffix(got, string(traceback)+"\nValueError") {
		t.Errorf("got %q", got)
	}
}

func TestFilesGetTheBytesAsTheyAre(t *testing.T) {
	var out, file bytes.Buffer
	const in = "a\r\nb\rno newline"
	NewStream(&out, &file, 0, "stdout", true).copyFrom(strings.NewReader(in))
	if file.String() != in {
		t.Errorf("got %q", file.String())
	}
}
