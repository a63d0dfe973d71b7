package launch

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/launch/remote"
	"github.com/gorovod/gorovod/internal/launch/spawn"
	"github.com/gorovod/gorovod/internal/tools/doctor"
)

// gorovod doctor sees the environment of the process.
func TestDoctorIsASubcommand(t *testing.T) {
	t.Setenv("HOROVOD_CACHE_CAPACITY", "77")
	code, out := printed(t, "doctor", "--env")
	for _, line := range strings.Split(out, "\n") {
		if f := strings.Fields(line); code == 0 && len(f) > 2 && f[0] == "HOROVOD_CACHE_CAPACITY" && f[1] == "77" &&
			f[2] == "environment" {
			return
		}
	}
	t.Errorf("exit code %d, output:\n%s", code, out)
}

// printed calls the program, and returns its exit code and what it has printed.
func printed(t *testing.T, args ...string) (int, string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stdout := os.Stdout
	os.Stdout = file
	code := Main(append([]string{"/usr/bin/gorovod"}, args...))
	os.Stdout = stdout
	out, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(out)
}

// With variables that no job can start with, this host is not well.
func TestDoctorFindsWrongVariables(t *testing.T) {
	t.Setenv("GOROVOD_GPU", "gibberish")
	code, out := printed(t, "doctor", "--python", "no-such-python")
	const finding = "\nFAILURE: this environment: GOROVOD_GPU=gibberish: auto, nccl, staged or off is needed\n"
	if code != 1 || !strings.Contains(out, finding) || !strings.HasSuffix(out, " cannot run.\n") {
		t.Errorf("exit code %d, output:\n%s", code, out)
	}
}

// On other hosts doctor inspects the Python that ranks there would get: the one of the launcher's PATH, in the
// launcher's environment, not the one of sshd's PATH.
func TestDoctorAsksTheRanksPython(t *testing.T) {
	ssh, _ := strings.CutPrefix(remotely(t), remote.SSHVariable+"=") // its agents have this PATH
	text, err := os.ReadFile(ssh)
	if err != nil {
		t.Fatal(err)
	}
	sshd := strings.ReplaceAll(string(text), `PATH="$PATH"`, `PATH="`+os.Getenv("PATH")+`"`)
	if err := os.WriteFile(ssh, []byte(sshd), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	python := `#!/bin/sh
echo "{\"Version\": \"$KEPT\", \"Packages\": {\"torch\": \"7$HOROVOD_SECRET_KEY\"}}"
`
	if err := os.WriteFile(filepath.Join(dir, "ranks-python"), []byte(python), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(remote.SSHVariable, ssh)
	t.Setenv(spawn.SecretVariable, "another job's")
	t.Setenv("KEPT", "9.8.7")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	var out bytes.Buffer
	err = examine(doctor.Cluster{Hosts: "localhost:1,far.invalid:1", Python: "ranks-python", NoPairs: true,
		StartTimeout: new(20)}, &out)
	if err != nil && !errors.Is(err, doctor.ErrUnwell) { // a host without a network is unwell
		t.Error(err)
	}
	// A fact in one line is that of both hosts.
	if !strings.Contains(out.String(), "\nPYTHON      9.8.7\nFRAMEWORKS  torch 7\n") {
		t.Errorf("not the ranks' Python on both hosts:\n%s", &out)
	}
}
