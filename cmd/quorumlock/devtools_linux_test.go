package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

// chromium is a headless browser, driven over a pipe by the Chrome DevTools Protocol: JSON messages
// that end with a zero byte, see https://chromedevtools.github.io/devtools-protocol/. So it needs
// no library.
type chromium struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *os.File

	mu      sync.Mutex
	last    int
	answers map[int]chan devtoolsMessage
	events  []devtoolsMessage
	gone    chan struct{}
}

type devtoolsMessage struct {
	ID        int             `json:"id,omitempty"`
	Session   string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Exception *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// browserVariable is the variable with the browser, if its name is unusual.
const browserVariable = "QUORUMLOCK_BROWSER"

// browserBinary returns the path of Chromium.
func browserBinary() (string, error) {
	names := []string{"chromium", "chromium-browser", "google-chrome"}
	if own := os.Getenv(browserVariable); own != "" {
		names = []string{own}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s", names[0])
}

// startChromium starts a browser that ends with the test.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	path, err := browserBinary()
	testkit.Must(t, err, "browser")
	toBrowser, in, err := os.Pipe()
	testkit.Must(t, err, "pipe")
	out, fromBrowser, err := os.Pipe()
	testkit.Must(t, err, "pipe")
	c := &chromium{t: t, in: in, answers: make(map[int]chan devtoolsMessage), gone: make(chan struct{})}
	c.cmd = exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(),
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "about:blank") // offline
	c.cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser} // 3 and 4
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	testkit.Must(t, c.cmd.Start(), "start the browser")
	_, _ = toBrowser.Close(), fromBrowser.Close()
	go c.read(out)
	t.Cleanup(func() {
		_ = in.Close()
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // it has children
		_ = c.cmd.Wait()
		<-c.gone
	})
	return c
}

func (c *chromium) read(out *os.File) {
	defer close(c.gone)
	defer out.Close() //nolint:errcheck // it was read
	for r := bufio.NewReader(out); ; {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m devtoolsMessage
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		c.mu.Lock()
		if answer := c.answers[m.ID]; answer != nil {
			delete(c.answers, m.ID)
			answer <- m
		} else {
			c.events = append(c.events, m)
		}
		c.mu.Unlock()
	}
}

// do sends a command, and puts the result into result, which may be nil.
func (c *chromium) do(session, method string, params map[string]any, result any) {
	c.t.Helper()
	c.mu.Lock()
	c.last++
	id, answer := c.last, make(chan devtoolsMessage, 1)
	c.answers[id] = answer
	c.mu.Unlock()
	message := map[string]any{"id": id, "method": method, "params": params}
	if session != "" {
		message["sessionId"] = session
	}
	text, err := json.Marshal(message)
	testkit.Must(c.t, err, "%s", method)
	_, err = c.in.Write(append(text, 0))
	testkit.Must(c.t, err, "%s", method)
	select {
	case m := <-answer:
		if m.Exception != nil {
			c.t.Fatalf("%s: %s", method, m.Exception.Message)
		}
		if result != nil {
			testkit.Must(c.t, json.Unmarshal(m.Result, result), "%s", method)
		}
	case <-c.gone:
		c.t.Fatalf("%s: the browser has gone", method)
	case <-time.After(patience):
		c.t.Fatalf("%s: no answer", method)
	}
}

// tab is a page of the browser.
type tab struct {
	*chromium
	session string
}

// open opens a page of that size, on a telephone if it is narrow. Before it does, prepare may set things up.
func (c *chromium) open(url string, width, height int, prepare func(*tab)) *tab {
	c.t.Helper()
	var target struct{ TargetID string }
	c.do("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	c.do("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	p := &tab{c, session.SessionID}
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.call(domain+".enable", nil, nil)
	}
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	if prepare != nil {
		prepare(p)
	}
	p.call("Page.navigate", map[string]any{"url": url}, nil)
	return p
}

func (p *tab) call(method string, params map[string]any, result any) {
	p.t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	p.do(p.session, method, params, result)
}

// eval returns the value of an expression of JavaScript, as text.
func (p *tab) eval(expression string) string {
	p.t.Helper()
	var r struct {
		Result struct {
			Value any `json:"value"`
		} `json:"result"`
		ExceptionDetails *struct{ Text string }
	}
	p.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		p.t.Fatalf("%s: %s", expression, r.ExceptionDetails.Text)
	}
	return fmt.Sprint(r.Result.Value)
}

// shows waits until an expression is true.
func (p *tab) shows(expression string) {
	p.t.Helper()
	if patiently(func() bool { return p.eval(expression) == "true" }) != nil {
		p.t.Fatalf("%s: never in\n%s", expression, p.eval("document.body.innerText"))
	}
}

// key presses and releases a key.
func (p *tab) key(name, text string) {
	p.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, " ": 32}
	key := map[string]any{"type": "keyDown", "key": name, "code": name, "windowsVirtualKeyCode": codes[name], "text": text}
	if name == " " {
		key["code"] = "Space"
	}
	p.call("Input.dispatchKeyEvent", key, nil)
	key["type"] = "keyUp"
	delete(key, "text")
	p.call("Input.dispatchKeyEvent", key, nil)
}

// heard returns the events of the browser with one of these methods, so far.
func (c *chromium) heard(methods ...string) (events []devtoolsMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if slices.Contains(methods, e.Method) {
			events = append(events, e)
		}
	}
	return events
}
