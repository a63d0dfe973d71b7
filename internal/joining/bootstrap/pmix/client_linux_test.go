//go:build cgo

package pmix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// roleVariable makes this test's binary one rank.
const roleVariable = "PMIX_TEST_ROLE"

func TestMain(m *testing.M) {
	role, ok := roles[os.Getenv(roleVariable)]
	if !ok {
		os.Exit(m.Run())
	}
	o := Options{Namespace: os.Getenv("PMIX_NAMESPACE"), LaunchersVersion: true}
	o.Rank, _ = strconv.Atoi(os.Getenv("OMPI_COMM_WORLD_RANK"))
	o.Size, _ = strconv.Atoi(os.Getenv("OMPI_COMM_WORLD_SIZE"))
	if err := role(o); err != nil {
		fmt.Printf("rank %d: %v\n", o.Rank, err)
		os.Exit(1)
	}
	fmt.Printf("rank %d is right\n", o.Rank)
	os.Exit(0)
}

func soon() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Second, cancel) // if the process has not ended by then
	return ctx
}

// roles are the roles of a rank. An error says what is wrong.
var roles = map[string]func(o Options) error{
	// exchange gives a value of rank 0 to all, twice.
	"exchange": func(o Options) error {
		c, err := Open(soon(), o)
		if err != nil {
			return err
		}
		if again, err := Open(soon(), o); again != c || err != nil {
			return fmt.Errorf("opened again: %v, %v", again == c, err)
		}
		for _, key := range []string{"one", "two"} {
			value := append(bytes.Repeat([]byte{0, 255, 10}, 2000), key...)
			if o.Rank == 0 {
				time.Sleep(50 * time.Millisecond) // the others must wait
				if err := c.Put(soon(), key, value); err != nil {
					return err
				}
			}
			if err := c.Fence(soon()); err != nil {
				return err
			}
			if got, err := c.Get(soon(), 0, key); err != nil || !bytes.Equal(got, value) {
				return fmt.Errorf("%d bytes for %q, %v", len(got), key, err)
			}
		}
		if roll, err := c.CallRoll("two"); err != nil || len(roll) != o.Size || len(roll[0]) != 0 || roll[0] == nil ||
			roll[1] != nil {
			return fmt.Errorf("a roll call: %q, %v", roll, err)
		}
		if got, err := c.Get(soon(), 0, "three"); err == nil {
			return fmt.Errorf("%q, which nobody has put", got)
		}
		c.Done()
		if err := c.Fence(soon()); err == nil {
			return errors.New("a fence after the last word")
		}
		if roll, err := c.CallRoll("one"); !errors.Is(err, errFinalized) {
			return fmt.Errorf("a roll call after the last word: %q, %v", roll, err)
		}
		if hosts := c.Hosts(); len(hosts) != o.Size || hosts[0] != "" {
			return fmt.Errorf("hosts after the last word: %q", hosts)
		}
		if _, err := Open(soon(), o); err == nil {
			return errors.New("opened after the last word")
		}
		return nil
	},
	// absent: rank 1 does not come.
	"absent": func(o Options) error {
		c, err := Open(soon(), o)
		if err != nil {
			return err
		}
		if o.Rank == 1 {
			fmt.Println("rank 1 is right") // mpirun ends rank 1 when rank 0 has gone without its last word
			time.Sleep(20 * time.Second)
			return errors.New("a rank that is still here")
		}
		if err := c.Put(soon(), "here", bytes.Repeat([]byte("h"), 300)); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		if err := c.Fence(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(),
			"not all ranks have come") {
			return fmt.Errorf("a fence without rank 1: %v", err)
		}
		if err := c.Put(soon(), "x", nil); !errors.Is(err, errLost) {
			return fmt.Errorf("after that: %v", err)
		}
		began := time.Now()
		roll, err := c.CallRoll("here")
		if took := time.Since(began); err != nil || len(roll) != 2 || string(roll[0]) != strings.Repeat("h", 255) ||
			roll[1] != nil || took < rollQuiet || took > rollLimit+time.Second {
			return fmt.Errorf("a roll call of %v: %q, %v", took, roll, err)
		}
		if hosts := c.Hosts(); len(hosts) != 2 || hosts[0] == "" || hosts[1] != hosts[0] {
			return fmt.Errorf("hosts %q", hosts)
		}
		return nil
	},
	// mistaken: the rank's place differs from the server's. The rank must be alone: if a rank finalizes PMIx while
	// another one still calls PMIx_Init, that call sometimes waits for ever (OpenPMIx 4.2.2).
	"mistaken": func(o Options) error {
		o.Size++
		if _, err := Open(soon(), o); err == nil || !strings.Contains(err.Error(), "of the 1 of") {
			return fmt.Errorf("a wrong size: %v", err)
		}
		return nil
	},
	// otherwise: the library says that it has another version than the launcher's.
	"otherwise": func(o Options) error {
		os.Setenv("PMIX_VERSION", "1.2.3")
		if _, err := Open(soon(), o); err == nil || !strings.Contains(err.Error(), "the launcher has PMIx 1.2.3") {
			return fmt.Errorf("another version: %v", err)
		}
		return nil
	},
	// nowhere: the library is none.
	"nowhere": func(o Options) error {
		if _, err := Open(soon(), o); err == nil || !strings.Contains(err.Error(), os.Getenv("PMIX_INSTALL_PREFIX")) {
			return fmt.Errorf("a text in the place of the library: %v", err)
		}
		return nil
	},
	// alone: no server has started the process.
	"alone": func(o Options) error {
		o.LaunchersVersion = false
		if _, err := Open(soon(), o); err == nil {
			return errors.New("a client of nobody")
		}
		return nil
	},
}

// run runs ranks with mpirun, or one rank without it if ranks is 0.
func run(t *testing.T, role string, ranks int, env ...string) {
	t.Helper()
	mpirun, err := exec.LookPath("mpirun.openmpi")
	if err != nil {
		t.Skipf("Open MPI is not installed (Debian: openmpi-bin): %v", err)
	}
	if found, _ := filepath.Glob("/usr/lib/*/" + libraryName); len(found) == 0 {
		t.Skipf("%s is not installed (Debian: libpmix2)", libraryName)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, mpirun, "--allow-run-as-root", "--oversubscribe", "-n", strconv.Itoa(ranks), "env",
		roleVariable+"="+role)
	c.Args = append(append(c.Args, env...), os.Args[0])
	if ranks == 0 {
		c = exec.CommandContext(ctx, os.Args[0])
		c.Env = append(os.Environ(), roleVariable+"="+role)
	}
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	for r := range max(ranks, 1) {
		if !strings.Contains(string(out), fmt.Sprintf("rank %d is right\n", r)) {
			t.Errorf("%s, rank %d: %v\n%s", role, r, err, out)
		}
	}
}

func TestExchange(t *testing.T) { run(t, "exchange", 2) }

func TestAbsentRank(t *testing.T) { run(t, "absent", 2) }

func TestOfNoUse(t *testing.T) {
	run(t, "mistaken", 1)
	run(t, "otherwise", 2)
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "lib"), 0o700),
		os.WriteFile(filepath.Join(dir, "lib", libraryName), []byte("no library"), 0o600)); err != nil {
		t.Fatal(err)
	}
	run(t, "nowhere", 2, "PMIX_INSTALL_PREFIX="+dir)
	run(t, "alone", 0)
}

func TestIsVersion(t *testing.T) {
	for words, versions := range map[string]map[string]bool{
		"OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, Stable ABI: 0.0)": {"4.2.2rc2": true, "4.2.2": false, "0.0": false,
			"": false, "OpenPMIx 4.2.2rc2": false},
		"PMIx 3.1.5": {"3.1.5": true, "3.1": false},
	} {
		for v, want := range versions {
			if isVersion(words, v) != want {
				t.Errorf("%q: %q", words, v)
			}
		}
	}
}

func TestMajor(t *testing.T) {
	for words, want := range map[string]int{"OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2)": 4,
		"OpenPMIx 5.0.7a1 (PMIx Standard: 5.1)": 5, "PMIx 3.1.5": 3, "": 0, "PMIx": 0} {
		if got := major(words); got != want {
			t.Errorf("%q: %d", words, got)
		}
	}
}

func TestCandidate(t *testing.T) {
	pmix, open, beside := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("PMIX_INSTALL_PREFIX", "")
	t.Setenv("OPAL_PREFIX", "")
	expect := func(want string) {
		t.Helper()
		if got := candidate(filepath.Join(beside, "libmpi.so.40")); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	expect(libraryName)
	install := func(path string) string {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	expect(install(filepath.Join(beside, libraryName)))
	t.Setenv("OPAL_PREFIX", open)
	expect(install(filepath.Join(open, "lib64", libraryName)))
	t.Setenv("PMIX_INSTALL_PREFIX", pmix)
	expect(install(filepath.Join(pmix, "lib", libraryName)))
}
