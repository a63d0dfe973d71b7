package doctor

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// secretShapes are ways in which users hand secrets to programs; % stands for the secret.
var secretShapes = []string{
	"env SSHPASS=% sshpass -e ssh", "SSHPASS=% sshpass -e ssh", "SSHPASS='%' sshpass -e ssh",
	`SSHPASS="%" sshpass -e ssh`,
	"sshpass -p % ssh", "sshpass -p% ssh", "sshpass -v -p % ssh", "sshpass -v -p% ssh", "sshpass '-p%' ssh",
	`sshpass "-p%" ssh`, "sshpass -p '%' ssh", "sshpass -p\t% ssh", "sshpass -p  % ssh",
	"ssh -o ProxyCommand='curl -u me:% https://host'", `ssh -o "ProxyCommand=curl -u me:% https://host"`,
	"ssh -oProxyCommand='curl --user me:%'", "ssh -o Password=%", "ssh -o Password='%'", "curl -u %", "curl -u me:%",
	"curl --user me:%", "curl --user=me:%", "get https://host/x?code=%", "get https://host/x?a=1&pass=%&b=2",
	"get https://host/x?pass=%", "get https://host/x#access_token=%", "get 'https://host/x?q=%'",
	"get https://me:%@host/x",
	"get https://%@host/x", "tool --key %", "tool --key=%", "tool --key '%'", "tool -key %", "tool --token %",
	"tool --pw %",
	"tool --pass %", "tool --password %", "tool --password=%", "tool --some-thing %", "tool -k %", "tool -x -k % y",
	"MY_THING=% tool", "export MY_THING=%", "tool -e MY_THING=%", `["tool", "--key", "%"]`, "['tool', '-p', '%']",
	"Authorization: Bearer %", "Authorization: Basic %", "authorization=%", "password: %", "password=%", "api_key = %",
	`{"password": "%"}`, "the key '%'", "DB_PWD: %",
}

// randomSecret is a text that no word of a bundle contains.
func randomSecret(r *rand.Rand) string {
	const characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/_.!"
	b := []byte("q")
	for range 7 + r.IntN(20) {
		b = append(b, characters[r.IntN(len(characters))])
	}
	return string(append(b, 'z'))
}

// No secret stays, whatever it looks like, in a text, in JSON, or in the command of GOROVOD_SSH. The lines around it
// stay.
func TestSecretsOfEveryShape(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	const before, after = "layer.weight waits on node1\n", "\nPATH=/usr/bin 4 ranks on node2 layer.bias"
	for _, shape := range secretShapes {
		for range 10 {
			secret := randomSecret(r)
			text := strings.ReplaceAll(shape, "%", secret)
			within := newRedactor(nil).text(before + text + after)
			if strings.Contains(within, secret) || !strings.HasPrefix(within, before) ||
				!strings.HasSuffix(within, after) {
				t.Errorf("%q became %q", text, within)
			}
			quoted, _ := json.Marshal(map[string]string{"failure": text})
			if got := newRedactor(nil).text(string(quoted)); strings.Contains(got, secret) {
				t.Errorf("%s became %s", quoted, got)
			}
			environ := []string{"GOROVOD_SSH=" + text}
			elsewhere := fmt.Sprintf("GOROVOD_SSH  %s  environment\nssh said: %s is wrong (%q)", text, secret, text)
			if got := newRedactor(environ).text(elsewhere); strings.Contains(got, secret) {
				t.Errorf("GOROVOD_SSH=%s: %s", text, got)
			}
			if t.Failed() {
				break
			}
		}
	}
}

// A bundle shows the program of a command, and nothing else of it.
func TestProgramsOfCommands(t *testing.T) {
	for command, want := range map[string]string{
		"ssh": "ssh", "/usr/bin/ssh": "ssh", "ssh -F my_config": "ssh (removed)", "": "",
		"env SSHPASS=x sshpass -e ssh": "env (removed)", "SSHPASS=secret sshpass -e ssh": "(removed) (removed)",
		"SSHPASS=secret": "(removed)", "'my ssh' x": "(removed) (removed)",
	} {
		want = strings.ReplaceAll(want, "(removed) (removed)", removed)
		if got := programOf(command); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}

// What helps, and is no secret, stays.
func TestHarmlessTextStays(t *testing.T) {
	for _, text := range []string{
		"horovodrun -np 4 -H node1:2,node2:2 --network-interfaces eth0 --start-timeout 60",
		"--start-timeout gives it more time; --remote-command says what it is called there",
		"HOROVOD_FUSION_THRESHOLD=1048576\nOMP_NUM_THREADS=4\nPATH=/usr/local/bin:/usr/bin",
		"XLA_FLAGS=--xla_force_host_platform_device_count=8",
		"layer-1/weight x-ray 3 - 4 -0.5 a -- b", "raise it: ulimit -n 65536", "1.5 GB/s -> node2 (12 us)",
		"rank=3 size=4 state: open", "2026-11-29T01:40:10Z node1 -  - ",
	} {
		if got := newRedactor([]string{"GOROVOD_SSH=ssh -F my_config"}).text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// The launcher's options, which advice names, are no mark of a secret; those whose value is the user's own are.
func TestTheLaunchersOptionsAreHarmless(t *testing.T) {
	page, err := os.ReadFile("../../../docs/command-line.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n## gorovod run\n")
	section, _, found := strings.Cut(rest, "\n## ")
	options := regexp.MustCompile("`(--[a-z][a-z0-9-]+)").FindAllStringSubmatch(section, -1)
	if !found || len(options) < 50 {
		t.Fatalf("%d options on the page", len(options))
	}
	own := []string{"--binding-args", "--mpi-args", "--export", "--verb"}
	for _, o := range options {
		if !isHarmless(o[1]) && !slices.Contains(own, o[1]) && !strings.HasPrefix(o[1], "--no-") {
			t.Errorf("%s is missing in harmlessOptions", o[1])
		}
	}
}
