package timeline

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// victimEnv makes this test binary the process that is killed.
const victimEnv = "TIMELINE_TEST_VICTIM"

// victim writes a timeline until it is killed.
func victim(path string) {
	tl := New()
	if err := tl.Start(path, true); err != nil {
		panic(err)
	}
	fmt.Println("started")
	for i := 0; ; i++ {
		operation(tl, fmt.Sprintf("tensor %d", i%500))
		if i%50 == 49 {
			time.Sleep(200 * time.Microsecond)
		}
	}
}

// TestKilledProcessLeavesAValidFile kills a process that writes a timeline as fast as it can. Only the bracket may be
// missing, if the kill came between the two writes of arrayFile.grow. These take some µs of each second, so that may
// happen to one file, not to two. TestAnyPrefixOfAWriteIsValid is the exact form of this test.
func TestKilledProcessLeavesAValidFile(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	bracketless := 0
	for i := range 6 {
		path := filepath.Join(t.TempDir(), "t.json")
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), victimEnv+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		time.Sleep(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
		cmd.Process.Kill()
		cmd.Wait()
		if line != "started\n" {
			t.Fatalf("the process said %q: %v", line, err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var records []record
		if err := json.Unmarshal(b, &records); err != nil {
			if e := json.Unmarshal(append(b, ']'), &records); e != nil {
				t.Fatalf("kill %d: the file is not valid: %v", i, err)
			}
			bracketless++
		}
		checkNested(t, records)
		t.Logf("%d records in %d bytes", len(records), len(b))
	}
	if bracketless > 1 {
		t.Errorf("%d files lack their bracket", bracketless)
	}
}
