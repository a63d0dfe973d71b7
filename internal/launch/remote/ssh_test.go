package remote

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/launch/wire"
)

func TestSSHCommands(t *testing.T) {
	env := map[string]string{}
	r := Shell{Port: 2222, Identity: "/k", Timeout: 7 * time.Second, Self: "/opt/it's/gorovod",
		Near: []string{"/venv/bin"}, Getenv: func(n string) string { return env[n] }}
	const finder = `exec sh -c 'for c do p=$(command -v "$c" 2>/dev/null) && exec "$p" agent; done; echo "gorovod-agent is none of: $*"; exit 127' sh `
	const names = `'/opt/it'\''s/gorovod' 'gorovod' '/venv/bin/gorovod' 'horovodrun'`
	for _, c := range []struct {
		name, value string
		Agent       string
		want        []string
	}{
		{"", "", "", []string{"ssh", "-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new", "-o",
			"ConnectTimeout=7", "-p", "2222", "-i", "/k", "h", finder + names}},
		{SSHVariable, "/bin/ssh -F c", "my gorovod", []string{"/bin/ssh", "-F", "c", "-T", "-o", "BatchMode=yes", "-o",
			"StrictHostKeyChecking=accept-new", "-o", "ConnectTimeout=7", "-p", "2222", "-i", "/k", "h",
			"my gorovod agent"}},
		{SSHVariable, "rsh -x", "g", []string{"rsh", "-x", "h", "g agent"}},
		{kubexecVariable, "ssh", "g", []string{"ssh", "-T", "-o", "BatchMode=yes", "-o",
			"StrictHostKeyChecking=accept-new", "-o", "ConnectTimeout=7", "-p", "2222", "-i", "/k", "h", "g agent"}},
	} {
		clear(env)
		env[c.name] = c.value
		r.Agent = c.Agent
		cmd, err := r.command("h")
		if err != nil || !slices.Equal(cmd.Args, c.want) {
			t.Errorf("%s=%s: %q, %v", c.name, c.value, cmd.Args, err)
		}
	}
	out, err := exec.Command("sh", "-c", strings.Replace(r.shell(), "g agent", finder+"'/no/x' 'y y'", 1)).Output()
	if string(out) != wire.NobodyGreeting+" /no/x y y\n" {
		t.Errorf("it says %q, %v", out, err)
	}
}

// Kubeflow's script gives its pods no stdin; the command that kubexec makes of it does.
func TestKubexec(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(dir+"/kubectl", []byte("#!/bin/sh\necho \"$@\"\n"), 0o700)
	os.WriteFile(dir+"/kubexec.sh", []byte("#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n"+dir+"/kubectl exec ${POD_NAME} "+
		"-- /bin/sh -c \"$*\"\n"), 0o700)
	args, err := kubexec(dir + "/kubexec.sh")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(args[0], append(args[1:], "worker-0", "gorovod agent")...).Output()
	if string(out) != "exec -i worker-0 -- /bin/sh -c gorovod agent\n" {
		t.Errorf("%q, %v", out, err)
	}
}
