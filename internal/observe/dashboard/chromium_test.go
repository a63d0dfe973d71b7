package dashboard

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/observe/door"
	"github.com/gorovod/gorovod/internal/observe/feed"
	"github.com/gorovod/gorovod/internal/observe/overview"
)

// tab is a page in a headless Chromium, controlled over its debugging pipe.
type tab struct {
	t       *testing.T
	to      *os.File
	answers chan answer
	session string
	next    int
}

type answer struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// complains reports whether a is an error of the script, or a violation of the security policy.
func (a *answer) complains() bool {
	return a.Method == "Runtime.exceptionThrown" || a.Method == "Log.entryAdded" &&
		(strings.Contains(string(a.Params), `"source":"security"`) ||
			strings.Contains(string(a.Params), `"source":"javascript"`))
}

// browse opens a page. It skips the test if there is no Chromium.
func browse(t *testing.T, page string) *tab {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if testing.Short() || err != nil {
		t.Skip("a longer test, with Chromium")
	}
	c := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
		"--user-data-dir="+t.TempDir(), "about:blank")
	theirIn, ourOut, err1 := os.Pipe()
	ourIn, theirOut, err2 := os.Pipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	c.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &tab{t: t, to: ourOut, answers: make(chan answer, 1000)}
	go func() {
		defer close(b.answers)
		for r := bufio.NewReader(ourIn); ; {
			text, err := r.ReadBytes(0)
			if err != nil {
				return
			}
			var a answer
			if json.Unmarshal(text[:len(text)-1], &a) == nil {
				b.answers <- a
			}
		}
	}()
	t.Cleanup(func() {
		b.do("Browser.close", nil)
		ourOut.Close()
		for range b.answers {
		}
		c.Wait()
		ourIn.Close()
	})
	b.begin(page)
	return b
}

// another opens a page in a further tab of the same browser.
func (b *tab) another(page string) *tab {
	b.t.Helper()
	o := &tab{t: b.t, to: b.to, answers: b.answers}
	o.begin(page)
	return o
}

// begin makes the browser's tab, and opens a page in it.
func (b *tab) begin(page string) {
	b.t.Helper()
	var made struct{ TargetID, SessionID string }
	json.Unmarshal(b.do("Target.createTarget", map[string]any{"url": "about:blank"}), &made)
	json.Unmarshal(b.do("Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}), &made)
	b.session = made.SessionID
	b.do("Log.enable", nil)
	b.do("Runtime.enable", nil)
	b.size(1300, 1500)
	b.visit(page)
}

func (b *tab) visit(page string) { b.do("Page.navigate", map[string]any{"url": page}) }

// reloads is in the error of a question to a page that reloads meanwhile.
const reloads = "navigated or closed"

// do sends a command, and returns its result. Complaints of the page in the meantime fail the test.
func (b *tab) do(method string, params any) json.RawMessage {
	b.t.Helper()
	b.next++
	text, err := json.Marshal(map[string]any{"id": b.next, "method": method, "params": params,
		"sessionId": b.session})
	if b.session == "" {
		text, err = json.Marshal(map[string]any{"id": b.next, "method": method, "params": params})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.to.Write(append(text, 0))
	late := time.After(30 * time.Second)
	for {
		select {
		case a, ok := <-b.answers:
			switch {
			case !ok:
				return nil
			case a.complains():
				b.t.Errorf("the page complains: %s", a.Params)
			case a.ID == b.next:
				if a.Error != nil && !strings.Contains(string(a.Error), reloads) { // then until asks again
					b.t.Errorf("%s: %s", method, a.Error)
				}
				return a.Result
			}
		case <-late:
			b.t.Errorf("%s: no answer", method)
			return nil
		}
	}
}

func (b *tab) size(width, height int) {
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height,
		"deviceScaleFactor": 1, "mobile": false})
}

// value is the value of an expression in the page.
func (b *tab) value(expression string) string {
	b.t.Helper()
	var v struct{ Result struct{ Value any } }
	json.Unmarshal(b.do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true,
		"awaitPromise": true}), &v)
	return fmt.Sprint(v.Result.Value)
}

// text is the text of the element with an id.
func (b *tab) text(id string) string {
	return b.value(`document.getElementById("` + id + `").textContent`)
}

// until waits until an expression in the page is true.
func (b *tab) until(expression string) {
	b.t.Helper()
	for began := time.Now(); b.value(expression) != "true"; time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			b.t.Fatalf("not within 30 s: %s", expression)
		}
	}
}

// keep writes a picture of the page into the folder in GOROVOD_TEST_PICTURES, for people to look at.
func (b *tab) keep(name string) {
	dir := os.Getenv("GOROVOD_TEST_PICTURES")
	if dir == "" {
		return
	}
	var v struct{ Data string }
	json.Unmarshal(b.do("Page.captureScreenshot", map[string]any{"format": "png"}), &v)
	picture, err := base64.StdEncoding.DecodeString(v.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o666)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// showsHidden checks that an element with an injection writes out what could hide or reorder text.
func (b *tab) showsHidden(id string) {
	b.t.Helper()
	if text := b.text(id); !strings.Contains(text, `\x1b[2J\u202egnp`) || strings.ContainsAny(text, "\x1b\u202e\r") {
		b.t.Errorf("%s hides what it has: %q", id, text)
	}
}

// TestInChromium looks at the page with a browser: it shows the job's texts as text, and reacts to keys.
func TestInChromium(t *testing.T) {
	s, _ := open(t, door.Options{Address: "0"})
	b := browse(t, s.URL())
	b.until(`document.getElementById("open").rows.length > 0 && document.getElementById("open").textContent.includes("img")`)
	if text := b.text("sentence"); !strings.Contains(text, "onerror=alert(1)") {
		t.Errorf("the sentence is %q", text)
	}
	b.showsHidden("sentence")
	b.showsHidden("open")
	if b.value(`document.getElementById("where").hidden`) != "true" {
		t.Error("a stack is shown without a token")
	}
	if b.value(`document.getElementById("samples").parentElement.hidden`) != "true" ||
		!strings.Contains(b.text("steps-text"), "No step") ||
		b.value(`document.getElementById("steps").clientHeight`) != "0" {
		t.Error("there are steps or samples that nobody has counted")
	}
	if n := b.value("document.images.length"); n != "0" {
		t.Errorf("%s pictures come from the job", n)
	}
	if b.text("ranks") != "2" || !strings.Contains(b.text("state"), "live") {
		t.Errorf("%q ranks, state %q", b.text("ranks"), b.text("state"))
	}
	b.value(`document.getElementById("heat").focus()`)
	b.do("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": "ArrowDown"})
	b.until(`document.getElementById("cell").textContent.startsWith("rank 0, ")`)
	b.do("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": "ArrowDown"})
	b.until(`document.getElementById("cell").textContent.startsWith("rank 1, ")`)
	if text := b.value(`document.getElementById("heat").getAttribute("aria-label")`); !strings.Contains(text, "2 rows") {
		t.Errorf("a screen reader says %q", text)
	}
	back := `getComputedStyle(document.body).backgroundColor`
	before := b.value(back)
	b.value(`document.getElementById("theme").click()`)
	if after := b.value(back); after == before {
		t.Errorf("the background stays %s", after)
	}
	s.Close()
	b.until(`document.getElementById("sentence").textContent === "The job has ended well."`)
	b.until(`document.getElementById("state").textContent.includes("ended")`)
}

// login enters a token where the page asks for it.
func (b *tab) login(token string) {
	b.t.Helper()
	b.until(`location.pathname === "/login" && !!document.querySelector("form")`)
	b.value(`document.getElementById("token").value = "` + token + `"; document.querySelector("button").click()`)
}

// live waits until the page shows the job.
func (b *tab) live() {
	b.t.Helper()
	b.until(`location.pathname === "/" && !!document.getElementById("state")?.textContent.includes("live")`)
}

// TestLoginInChromium enters the token, and sees the last lines of a rank.
func TestLoginInChromium(t *testing.T) {
	s, _ := open(t, door.Options{Address: "0", Token: token})
	b := browse(t, s.URL())
	b.login("wrong")
	b.until(`!document.getElementById("wrong").hidden`)
	if text := b.text("wrong"); !strings.Contains(text, "not the token") {
		t.Errorf("a wrong token: %q", text)
	}
	b.login(token)
	b.live()
	for path, want := range map[string]string{"": "401", "?key=${key()}": "200"} {
		if code := b.value("fetch(`/snapshot" + path + "`).then((a) => a.status)"); code != want {
			t.Errorf("/snapshot%s: %s", path, code)
		}
	}
	b.until(`document.getElementById("where").textContent.includes("<img src=x onerror=alert(2)> (x/y.py:7)")`)
	if hidden := b.value(`document.getElementById("where").hidden`); hidden != "false" {
		t.Error("the stack is hidden")
	}
	b.keep("where")
	b.value(`document.querySelector("#lines-form button").click()`)
	b.until(`document.getElementById("lines").textContent.includes("<img")`)
	b.showsHidden("lines")
	if cookie := b.value("document.cookie"); cookie != "" {
		t.Errorf("a script sees %q", cookie)
	}
}

// TestTwoPagesInChromium logs in at two pages of one host. Each stays open to its reader.
func TestTwoPagesInChromium(t *testing.T) {
	first, _ := open(t, door.Options{Address: "0", Token: token})
	second, _ := open(t, door.Options{Address: "0", Token: token})
	b := browse(t, first.URL())
	b.login(token)
	b.live()
	b.visit(second.URL())
	b.login(token)
	b.live()
	b.visit(first.URL())
	b.live()
	b.value(`localStorage.removeItem("key"); location.reload()`) // the cookie alone is no session
	b.until(`location.pathname === "/login"`)
}

// TestANewLoginInAnotherTabInChromium logs in anew in a second tab. When the first tab's connection breaks, its session
// is over, and it loads again with the new one.
func TestANewLoginInAnotherTabInChromium(t *testing.T) {
	_, job := open(t, door.Options{Address: "0"})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	line := &cuttable{Listener: l}
	s := serve(line, "http://"+l.Addr().String()+"/", &view{job: job, token: token}, true, false)
	t.Cleanup(s.Close)
	first := browse(t, s.URL())
	first.login(token)
	first.live()
	first.value(`window.old = true`)
	old := first.value("key()")
	second := first.another(s.URL() + "login")
	second.login(token)
	second.live()
	if first.value("key()") == old || first.value("old") != "true" {
		t.Fatal("the tabs share no login")
	}
	line.cut()
	first.until(`!window.old`)
	first.live()
}

// cuttable is a listener whose connections can be closed.
type cuttable struct {
	net.Listener
	mu   sync.Mutex
	open []net.Conn
}

func (l *cuttable) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.open = append(l.open, c)
	}
	return c, err
}

func (l *cuttable) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		c.Close()
	}
}

// TestManyRanksInChromium looks at a job of 512 ranks on 64 hosts, and at the page's times.
func TestManyRanksInChromium(t *testing.T) {
	const ranks = 512
	s, job := open(t, door.Options{Address: "0"})
	job.Keep()
	manyRanks(job, ranks)
	time.Sleep(20 * time.Second) // so that there is a past to see
	began := time.Now()
	b := browse(t, s.URL())
	opened := time.Now()
	b.until(`document.getElementById("ranks").textContent === "512"`)
	loaded := time.Since(opened)
	b.until(`document.getElementById("sentence").textContent.includes("rank 77 on node-009")`)
	if are := b.text("rows-are"); are != "host" {
		t.Errorf("the rows are a %s each", are)
	}
	if n := b.value(`document.getElementById("host").options.length`); n != fmt.Sprint(ranks/8+1) {
		t.Errorf("%s hosts to choose from", n)
	}
	if step, text := b.text("step"), b.text("steps-text"); !strings.HasSuffix(step, " ms") ||
		!strings.Contains(text, " steps; one takes "+step) {
		t.Errorf("a step takes %q: %q", step, text)
	}
	if samples := b.text("samples"); samples == "0" || b.value(`document.getElementById("samples").parentElement.hidden`) != "false" {
		t.Errorf("%q samples a second", samples)
	}
	if row := b.value(`document.getElementById("table").rows[1].cells[3].textContent`); !strings.HasPrefix(row, "rank 77: ") { // about 20 %
		t.Errorf("a rank waits for %q", row)
	}
	frame := b.value(`(() => { const t = performance.now(); for (let i = 0; i < 20; i++) show(); return (performance.now() - t) / 20; })()`)
	t.Logf("512 ranks: the browser is there after %v, the page after further %v; a refresh takes %.4s ms",
		opened.Sub(began).Round(time.Millisecond), loaded.Round(time.Millisecond), frame)
	links := b.text("links")
	if !strings.HasPrefix(links, "tcp, eth032MiB1.25 GB/s10 GB/s, node-") || !strings.Contains(links, "12.5 GB/s80 %") {
		t.Errorf("the links are %q", links)
	}
	b.keep("512")
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme",
		"value": "dark"}}})
	b.size(500, 1800)
	time.Sleep(1500 * time.Millisecond)
	if wide := b.value(`document.documentElement.scrollWidth <= innerWidth`); wide != "true" {
		t.Error("the page is wider than a narrow window")
	}
	b.keep("512-dark-narrow")
}

// manyRanks gives the job many ranks, eight on a host, which wait for rank 77.
func manyRanks(job *overview.Job, ranks int) {
	figures := make([]feed.Figures, ranks)
	job.Form(ranks, 1<<20, func() int { return ranks }, func() {
		for i := range figures {
			f := &figures[i]
			f.CPU += 5e8
			f.Steps.Observe(2.5e8 + 1e8*int64(f.Steps.Count()/4%3))
			f.Samples += 64
			f.NIC = feed.NIC{Name: "eth0", Rate: 1e11}
			sent := uint64(25e7)
			if len(f.Traffic) > 0 {
				sent += f.Traffic[0].Bytes
			}
			f.Traffic = []feed.Traffic{{Way: feed.ByTCP, Class: 3, Bytes: sent, Time: sent / 5 * 4}}
			f.Resident = uint64(2e9 + 1e6*i)
			f.WaitedFor = nil
			if i != 77 {
				f.Waited += uint64(2e8 + 5e6*(i%97))
				f.WaitedFor = []feed.Late{{Rank: 77, Nanoseconds: 2e8}}
			}
			job.Take(i, 1<<20, fmt.Sprintf("node-%03d", i/8), f.Append(nil))
		}
	})
}
