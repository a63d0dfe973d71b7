package launch

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What clouds answer: nothing there, not yet, and a notice.
func TestFetchNotice(t *testing.T) {
	for _, c := range []struct {
		code  int
		body  string
		there bool
	}{
		{http.StatusNotFound, "no such page", false}, {http.StatusOK, "FALSE\n", false}, {http.StatusOK, "TRUE", true},
		{http.StatusOK, `{"action": "terminate", "time": "2027-01-01T00:00:00Z"}`, true},
		{http.StatusServiceUnavailable, "TRUE", false},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Metadata-Flavor") != "Google" {
				t.Error("one cloud answers only to those who say its name")
			}
			w.WriteHeader(c.code)
			w.Write([]byte(c.body))
		}))
		text, there := fetchNotice(s.URL)
		if there != c.there || there && text != strings.TrimSpace(c.body) {
			t.Errorf("%d %q: %v %q", c.code, c.body, there, text)
		}
		s.Close()
		if _, there := fetchNotice(s.URL); there {
			t.Error("nobody is there, and gives notice")
		}
	}
}

// A notice may come long after the first look.
func TestAwaitNotice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notice")
	said := make(chan string, 1)
	go func() { said <- awaitNotice(file) }()
	select {
	case text := <-said:
		t.Fatal("there is no notice, and yet:", text)
	case <-time.After(50 * time.Millisecond):
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case text := <-said:
		if want := file + " is there"; text != want {
			t.Errorf("%q, want %q", text, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it is not seen")
	}
}

func TestElasticNodesOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--nnodes 2:1 --node-rank 0 --master-addr a true":         `--nnodes "2:1": a number from 1 to`,
		"--nnodes 2 --node-rank 0 --master-addr a --leave-on x t": "--leave-on is for elastic jobs",
		"--leave-on x true":                                                "each node has a launcher",
		"-np 2 --leave-on x true":                                          "give --nnodes MIN:MAX, or set PET_NNODES",
		"-np 2 -H b:2 --leave-on x true":                                   "give --nnodes MIN:MAX, or set PET_NNODES",
		"--nnodes 2 --node-rank 0 --master-addr a --max-np 3 true":         "--max-np is for elastic jobs",
		"--nnodes 1:2 --node-rank 0 --master-addr a -H b:1 true":           "--hosts and --nnodes: one of them",
		"--nnodes 1:2 --node-rank 0 --master-addr a --leave-on http: t":    "",
		"--nnodes 1:2 --node-rank 0 --master-addr a --leave-on http:// t":  "--leave-on http://: a file, or a URL",
		"--nnodes 4 --node-rank 0 --master-addr a --min-np 3 --max-np 2 t": "--max-np 2 is below --min-np 3",
	} {
		_, err := parseFlags("horovodrun", strings.Fields(args))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
