package k8s

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	jsonyaml "sigs.k8s.io/yaml"
)

// cluster is a kube-apiserver with its etcd, on loopback addresses and in a folder of the test. It ends with the test.
type cluster struct {
	url, token string
	http       http.Client
}

// patience is the longest time for a program to start, on a busy machine.
const patience = 4 * time.Minute

// start starts a cluster, with the namespaces default and team.
func start(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	clients, peers := address(t), address(t)
	run(t, *etcd, "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", "http://"+clients,
		"--advertise-client-urls", "http://"+clients, "--listen-peer-urls", "http://"+peers,
		"--initial-advertise-peer-urls", "http://"+peers, "--initial-cluster", "default=http://"+peers)

	c := &cluster{token: rand.Text()}
	signing, tokens, certificates := filepath.Join(dir, "signing.pem"), filepath.Join(dir, "tokens"),
		filepath.Join(dir, "certificates")
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	write(t, signing, string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(private)})))
	write(t, tokens, c.token+",tester,1,system:masters\n")
	own := address(t)
	_, port, _ := strings.Cut(own, ":")
	c.url = "https://" + own
	run(t, *apiserver, "--etcd-servers", "http://"+clients, "--bind-address", "127.0.0.1", "--secure-port", port,
		"--cert-dir", certificates, "--token-auth-file", tokens, "--authorization-mode", "RBAC",
		"--service-cluster-ip-range", "10.0.0.0/24", "--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", signing, "--service-account-signing-key-file", signing)

	wait(t, "kube-apiserver's certificate", func() bool {
		text, err := os.ReadFile(filepath.Join(certificates, "apiserver.crt"))
		roots := x509.NewCertPool()
		if err != nil || !roots.AppendCertsFromPEM(text) {
			return false
		}
		c.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
		return true
	})
	t.Cleanup(c.http.CloseIdleConnections)
	wait(t, "kube-apiserver", func() bool {
		code, _, err := c.ask(http.MethodGet, "/readyz", "", nil)
		return err == nil && code == http.StatusOK
	})
	for _, name := range []string{"default", "team"} {
		namespace := fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", name)
		if code, said := c.apply(t, "/api/v1/namespaces/"+name, []byte(namespace)); code >= 300 {
			t.Fatalf("namespace %s: %d %s", name, code, said)
		}
	}
	return c
}

// address returns an address of this machine at which nobody listens.
func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "127.0.0.1:" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// run runs a program until the test ends. If the test fails, it shows the program's output.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			text := out.String()
			t.Logf("%s wrote at last:\n%s", filepath.Base(name), text[max(0, len(text)-8000):])
		}
	})
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s is not there after %v", what, patience)
		}
	}
}

// ask sends a request, and returns the code and the body of the answer.
func (c *cluster) ask(method, path, contentType string, body []byte) (code int, text []byte, err error) {
	r, err := http.NewRequest(method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	return answer.StatusCode, text, err
}

// do is ask, and fails the test if there is no answer. said is the server's message if the answer is a status.
func (c *cluster) do(t *testing.T, method, path, contentType string, body []byte) (code int, said string) {
	t.Helper()
	code, text, err := c.ask(method, path, contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	var status struct{ Message string }
	if json.Unmarshal(text, &status) == nil {
		said = status.Message
	}
	return code, said
}

// apply applies a document to path, as kubectl apply --server-side does.
func (c *cluster) apply(t *testing.T, path string, document []byte) (code int, said string) {
	t.Helper()
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return c.do(t, http.MethodPatch, path+separator+"fieldManager=test&fieldValidation=Strict",
		"application/apply-patch+yaml", document)
}

// get reads the object at path into v.
func (c *cluster) get(t *testing.T, path string, v any) {
	t.Helper()
	code, text, err := c.ask(http.MethodGet, path, "", nil)
	if err != nil || code != http.StatusOK {
		t.Fatalf("%s: %d %v %s", path, code, err, text)
	}
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) version(t *testing.T) string {
	var v struct{ GitVersion string }
	c.get(t, "/version", &v)
	return v.GitVersion
}

// resource is the server's name for a kind.
type resource struct {
	Name, Kind string
	Namespaced bool
}

// resource returns the resource of a kind; root is the path of its group and version.
func (c *cluster) resource(t *testing.T, root, kind string) resource {
	t.Helper()
	var list struct{ Resources []resource }
	c.get(t, root, &list)
	for _, r := range list.Resources {
		if r.Kind == kind && !strings.Contains(r.Name, "/") {
			return r
		}
	}
	t.Fatalf("%s has no %s", root, kind)
	panic("unreachable")
}

// define sends the server a definition of a custom resource, and waits until the definition is in force.
func (c *cluster) define(t *testing.T, file [2]string) {
	t.Helper()
	text, err := jsonyaml.Marshal(definition(t, file))
	if err != nil {
		t.Fatal(err)
	}
	var about struct {
		Metadata struct{ Name string }
		Spec     struct {
			Group    string
			Versions []struct{ Name string }
		}
	}
	if err := jsonyaml.Unmarshal(text, &about); err != nil {
		t.Fatal(err)
	}
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + about.Metadata.Name
	if code, said := c.apply(t, path, text); code >= 300 {
		t.Fatalf("refused: %s: %d %s", file[1], code, said)
	}
	plural, _, _ := strings.Cut(about.Metadata.Name, ".")
	for _, v := range about.Spec.Versions {
		root := fmt.Sprintf("/apis/%s/%s", about.Spec.Group, v.Name)
		wait(t, about.Metadata.Name, func() bool {
			code, text, err := c.ask(http.MethodGet, root, "", nil)
			return err == nil && code == http.StatusOK && bytes.Contains(text, []byte(`"name":"`+plural+`"`))
		})
	}
}
