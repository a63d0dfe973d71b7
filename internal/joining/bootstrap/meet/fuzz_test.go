package meet

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A file in the place of rank 0's is an offer, or Read refuses it with its path.
func FuzzFile(f *testing.F) {
	f.Add([]byte(`{"addrs":["a:1"],"key":"AAE="}`))
	f.Add([]byte(`{"trouble":"none"}`))
	f.Add([]byte(`{"addrs":[null,1]}`))
	f.Add([]byte(`{"key":"*"}`))
	f.Add([]byte("[" + strings.Repeat("[", 20000)))
	store, err := newFile(f.TempDir(), "job")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(store.path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o, err := store.Read(ctx, nil)
		switch {
		case err != nil && !strings.Contains(err.Error(), store.path):
			t.Errorf("%q: %v", content, err)
		case err == nil && !o.equal(o):
			t.Errorf("%q: %v", content, o)
		}
	})
}

// Whatever a process manager answers, the conversation ends, and no error shows the answer.
func FuzzPMI(f *testing.F) {
	f.Add("cmd=response_to_init rc=0\ncmd=maxes vallen_max=1024\ncmd=my_kvsname " +
		"kvsname=k\ncmd=barrier_out\ncmd=get_result rc=0 value=e30\ncmd=finalize_ack\n")
	f.Add("cmd=response_to_init rc=-1 s3cret\n")
	f.Add("cmd=response_to_init\ncmd=maxes vallen_max=-9999999999999999999\n")
	f.Add(strings.Repeat("x", 5000))
	f.Fuzz(func(t *testing.T, answers string) {
		here, there := net.Pipe()
		defer here.Close()
		go func() {
			defer there.Close()
			lines := bufio.NewReader(there)
			for line := range strings.SplitAfterSeq(answers, "\n") {
				if _, err := lines.ReadSlice('\n'); err != nil {
					return
				}
				if _, err := io.WriteString(there, line); err != nil {
					return
				}
			}
		}()
		s := newSpeaker(here)
		defer close(s.closed)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := s.begin(ctx)
		for _, kind := range []string{"barrier_out", "get_result", "finalize_ack"} {
			if err == nil {
				_, err = s.ask(ctx, "x", kind)
			}
		}
		if err == nil {
			return
		}
		for _, field := range strings.Fields(answers) {
			name, value, _ := strings.Cut(field, "=")
			for _, said := range []string{name, value} {
				if _, number := strconv.Atoi(said); len(said) > 3 && number != nil && strings.Contains(err.Error(),
					said) && !strings.Contains(ownWords, said) {
					t.Errorf("%q was said, and is shown: %v", said, err)
				}
			}
		}
	})
}

// ownWords are words in the errors that do not come from answers.
const ownWords = "the answer to init, get_maxes, get_my_kvsname, is not answered with response_to_init, maxes, " +
	"my_kvsname, barrier_out, get_result, finalize_ack " +
	"is refused: rc= is answered with a vallen_max that is no number bufio: buffer full the process manager has " +
	"closed connection io: read/write on closed pipe EOF"
