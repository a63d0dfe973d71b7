package doctor

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/observe/flight"
)

// unpack reads a bundle.
func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for archive := tar.NewReader(z); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o600 {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		found[h.Name] = string(text)
	}
}

// planted are secrets of many kinds. Each is in a place that a bundle reads, or could read.
var planted = map[string]string{
	"key":       "c0ffeec0ffeec0ffeec0ffeec0ffeec0",
	"variable":  "correct horse",
	"quoted":    `it"s \ hidden`,
	"URL":       "hunter2/@pass",
	"flag":      "swordfish",
	"AWS":       "AKIAIOSFODNN7EXAMPLE",
	"opaque":    "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
	"bare":      "Zm9vYmFyQmF6cXV4MTIzNDU2Nzg5MGFiY2RlZmdoaQ==",
	"web":       "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
	"git":       "ghp_abcdefghijklmnopqrst0123456789",
	"private":   "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
	"undreamed": "a variable that nobody has heard of",
	"ssh":       "sesame",
	"signed":    "c2lnbmVk%3D",
	"signature": "5d672d79",
	"short":     "abracadabra",
	"file":      "what stands in a file of the user's",
}

func TestABundleHasNoSecrets(t *testing.T) {
	dir := t.TempDir()
	dumps := filepath.Join(dir, "dumps")
	d := &flight.Dump{Job: "j", Rank: 1, Size: 2, Host: "node-" + planted["git"], PID: 7, Time: time.Now(),
		Failure: "cannot read https://me:" + planted["URL"] + "@host/data, token=" + planted["opaque"],
		Records: []flight.Record{{Op: "ALLREDUCE", Name: "grad." + planted["variable"]},
			{Op: "ALLREDUCE", Name: planted["quoted"]}, {Op: "ALLREDUCE", Name: "layer.weight"}}}
	if _, err := d.Save(dumps); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"notes.txt", "flight-" + planted["web"] + ".txt"} {
		if err := os.WriteFile(filepath.Join(dumps, name), []byte(planted["file"]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	environ := []string{
		"HOROVOD_SECRET_KEY=" + planted["key"], "_HOROVOD_SECRET_KEY=" + planted["key"],
		"DB_PASSWORD=" + planted["variable"], "MY_AUTH=" + planted["quoted"], "SIGNING=x",
		"PLAIN=" + planted["undreamed"], "SESSION_ID=1",
		"GOROVOD_SSH=ssh --password " + planted["flag"], "HOROVOD_TIMELINE=https://me:" + planted["URL"] + "@host/",
		"HOROVOD_AUTOTUNE_LOG=/tmp/" + planted["AWS"] + "?q=" + url.QueryEscape(planted["quoted"]),
		"XLA_FLAGS=--api_key=" + planted["opaque"] + " " + planted["private"],
		"PATH=/usr/local/bin:/usr/bin", "OMP_NUM_THREADS=4", "HOROVOD_RANK=" + planted["web"],
		"HOROVOD_SECRT_KEY=" + planted["key"],
		"GOROVOD_LIBRARY=" + planted["bare"], "GOROVOD_DUMP_DIR=https://blob/x?sv=1&sig=" + planted["signed"],
		"GOROVOD_CHECKPOINT_DIR=https://s3/x?X-Amz-Signature=" + planted["signature"],
		"HOROVOD_TIMELINE_MARK_CYCLES=sshpass -p " + planted["ssh"] + " ssh --pw=" + planted["short"] + " --pass " +
			planted["short"],
	}
	examine := func(c Cluster, w io.Writer) error {
		fmt.Fprintf(w, "HOST\n%s %s, Authorization: Bearer %s\n", c.Hosts, planted["variable"], planted["git"])
		return ErrUnwell
	}
	file := filepath.Join(dir, "help.tar.gz")
	var stdout, stderr bytes.Buffer
	if code := Main("gorovod doctor", []string{"--bundle", file, "--dump", dumps, "-H", "node1:2"}, environ,
		&stdout, &stderr, examine); code != 0 {
		t.Fatalf("code %d: %s", code, &stderr)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	found := unpack(t, file)
	all := stdout.String() + stderr.String()
	for name, text := range found {
		all += name + "\n" + text
	}
	for kind, secret := range planted {
		for _, part := range append(strings.Split(secret, "\n"), secret, url.QueryEscape(secret)) {
			if strings.Contains(all, part) && !strings.HasPrefix(part, "-----") {
				t.Errorf("the bundle has the secret %q (%s):\n%s", part, kind, all)
			}
		}
	}
	for name, says := range map[string]string{
		"README.txt":                "Made by gorovod doctor --bundle at ",
		"versions.txt":              "gorovod 0.",
		"environment.txt":           "\nOMP_NUM_THREADS=4\nPATH=/usr/local/bin:/usr/bin\n",
		"doctor.txt":                "HOST\nnode1:2 (removed), Authorization: (removed)",
		"dump.txt":                  "layer.weight",
		"dumps/job0-rank1.json":     `"cannot read https://(removed)`,
		"no/such file of a bundle!": "",
	} {
		if says != "" && !strings.Contains(found["gorovod-bundle/"+name], says) {
			t.Errorf("%s does not say %q:\n%s", name, says, found["gorovod-bundle/"+name])
		}
	}
	before, after, _ := strings.Cut(stdout.String(), file+": ")
	if !strings.Contains(before, "dump.txt") || !strings.Contains(after,
		" bytes, for your eyes only. Nothing was sent.") {
		t.Errorf("it says:\n%s", &stdout)
	}
}

func TestABundleIsWhatItsNameSays(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"help", "help.tar.gz", "help.TGZ", "my.zip"} {
		var stdout, stderr bytes.Buffer
		file := filepath.Join(dir, name)
		if code := Main("gorovod doctor", []string{"--bundle", file}, nil, &stdout, &stderr, examined); code != 0 {
			t.Fatalf("%s: code %d: %s", name, code, &stderr)
		}
		if !strings.HasSuffix(name, ".zip") {
			if unpack(t, file)["gorovod-bundle/doctor.txt"] == "" ||
				!strings.Contains(stdout.String(), "tar -xzOf "+file) {
				t.Errorf("%s: %s", name, &stdout)
			}
			continue
		}
		z, err := zip.OpenReader(file)
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		f, err := z.Open("gorovod-bundle/doctor.txt")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(f)
		if !strings.HasPrefix(string(text), "examined") || !strings.Contains(stdout.String(), "unzip -p "+file) {
			t.Errorf("%s: %q, %v: %s", name, text, err, &stdout)
		}
	}
}

func TestABundleIsNewOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(dir, "fresh")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--bundle", there}, 1, "it exists already: name a new file"},
		{[]string{"--bundle", link}, 1, "it exists already: name a new file"},
		{[]string{"--bundle", filepath.Join(dir, "no", "such")}, 1, "no such file or directory"},
		{[]string{"--bundle", fresh, "--dump", "/no/such"}, 1, "neither a process id nor a directory"},
		{[]string{"--bundle", fresh, "-H", "broken:1"}, 1, "no such thing"},
		{[]string{"--bundle", fresh, "--env"}, 2, "can't be used together"},
		{[]string{"--dump", "1", "-H", "a:1"}, 2, "can't be used together"},
		{[]string{"--bundle", "/dev/full"}, 1, "it exists already"},
		{[]string{"--bundle", filepath.Join(dir, "help.rar")}, 2,
			"a name that ends in .tar.gz, .tgz or .zip is needed"},
		{[]string{"--bundle", filepath.Join(dir, "help.gz")}, 2, "a name that ends in .tar.gz, .tgz or .zip is needed"},
	} {
		var stdout, stderr bytes.Buffer
		code := Main("gorovod doctor", c.args, nil, &stdout, &stderr, examined)
		if code != c.code || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%v: code %d, %s", c.args, code, &stderr)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if text, _ := os.ReadFile(there); len(left) != 2 || string(text) != "mine" {
		t.Errorf("%v, %v: %s", left, err, text)
	}
}

func TestRedaction(t *testing.T) {
	r := newRedactor([]string{"API_TOKEN=abcdef", "OTHER_KEY=short", "PASSWORD=abcdefghi", "MONKEY=banana",
		"DB_PWD=pass-one", "GIT_PAT=word-two", "CLOUD_CREDS=tree-three", "PWD=/home/me/src", "OLDPWD=/home/me/src",
		"TERM=xterm-256color"})
	for in, want := range map[string]string{
		"grad.abcdef.weight, abcdefghi":                    "grad.(removed).weight, (removed)",
		"token_embedding.weight short":                     "token_embedding.weight short",
		"/usr/lib/Python3/dist-packages/numpy/core/x86_64": "/usr/lib/Python3/dist-packages/numpy/core/x86_64",
		"DistributedOptimizer.allreduce.Layer12.weight":    "DistributedOptimizer.allreduce.Layer12.weight",
		`{"password": "x y", "rank": 1}`:                   `{"password": (removed), "rank": 1}`,
		"sha 0123456789abcdee0123456789abcdee":             "sha (removed)",
		"ssh://git@host/x":                                 "ssh://(removed)host/x",
		`"me:abc123@host:80" at 15:13:50`:                  `"(removed)host:80" at 15:13:50`,
		"git@host:x and [::1]:80":                          "git@host:x and [::1]:80",
		"no DEPLOY_KEY 'x y', DB_PWD: z":                   "no DEPLOY_KEY (removed), DB_PWD: (removed)",
		`the token was \"a b\", my_pat="c"`:                `the token was (removed), my_pat=(removed)`,
		"KEY 'value' PATH=/bin":                            "KEY (removed) PATH=/bin",
		"values pass-one word-two tree-three":              "values (removed) (removed) (removed)",
		"/home/me/src":                                     "/home/me/src",
		"xterm-256color":                                   "xterm-256color",
		"HOROVOD_SECRET_KEY  set  environment":             "HOROVOD_SECRET_KEY  set  environment",
	} {
		if got := r.text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
