package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

// serving is quorumlock serve as a process.
type serving struct {
	*exec.Cmd
	url    string // without a / at the end
	stderr bytes.Buffer
}

// startServing runs serve on a free port, unless args set another.
func startServing(dir string, env []string, args ...string) (*serving, error) {
	s := &serving{Cmd: exec.Command(tool, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)}
	s.Dir, s.Env, s.Stderr = dir, env, &s.stderr
	out, err := s.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_, url, ok := strings.Cut(strings.TrimSuffix(line, "/\n"), "quorumlock serves ")
	if err != nil || !ok {
		_ = s.Wait()
		return nil, fmt.Errorf("serve %q: %q, %v: %s", args, line, err, s.stderr.String())
	}
	s.url = url
	return s, nil
}

// stop ends the process like a service manager. It must end with status 0.
func (s *serving) stop() error {
	_ = s.Process.Signal(os.Interrupt)
	ended := make(chan error, 1)
	go func() { ended <- s.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("serve: %w: %s", err, s.stderr.String())
		}
		return nil
	case <-time.After(patience):
		_ = s.Process.Kill()
		return fmt.Errorf("serve does not end: %v", <-ended)
	}
}

// serveNodes serves the nodes until the test ends.
func serveNodes(t *testing.T, nodes string, args ...string) *serving {
	t.Helper()
	s, err := startServing("", append(os.Environ(), "QUORUMLOCK_NODES="+nodes), args...)
	testkit.Must(t, err, "start")
	t.Cleanup(func() { testkit.OK(t, s.stop(), "stop") })
	return s
}

// browserless is a client that keeps no connection.
var browserless = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

func fetch(url string) (status int, body string, err error) {
	r, err := browserless.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close() //nolint:errcheck // it was read
	b, err := io.ReadAll(r.Body)
	return r.StatusCode, string(b), err
}

// serveInScript is the command serve ARGS of the scripts.
func serveInScript(ts *testscript.TestScript, _ bool, args []string) {
	var env []string
	for _, name := range []string{"PATH", "HOME", options.NodesVariable, passwordVariable} {
		env = append(env, name+"="+ts.Getenv(name))
	}
	s, err := startServing(ts.MkAbs("."), env, args...)
	ts.Check(err)
	ts.Setenv("URL", s.url)
	ts.Defer(func() { ts.Check(s.stop()) })
}

// getInScript is the command get [-X METHOD] [-u USER:PASSWORD] [-host NAME] [-until REGEXP] PATH.
// It writes the body to stdout. Negated, it expects a refusal.
func getInScript(ts *testscript.TestScript, neg bool, args []string) {
	f := flag.NewFlagSet("get", flag.ContinueOnError)
	method, user, host, until := f.String("X", "GET", ""), f.String("u", "", ""), f.String("host", "", ""), f.String("until", "", "")
	ts.Check(f.Parse(args))
	want := regexp.MustCompile("(?m)" + *until)
	var answer bytes.Buffer
	ts.Check(patiently(func() bool {
		answer.Reset()
		r, err := http.NewRequestWithContext(context.Background(), *method, ts.Getenv("URL")+f.Arg(0), nil)
		ts.Check(err)
		if name, password, ok := strings.Cut(*user, ":"); ok {
			r.SetBasicAuth(name, password)
		}
		r.Host = *host
		got, err := browserless.Do(r)
		ts.Check(err)
		fmt.Fprintln(&answer, got.Status)
		ts.Check(got.Header.Write(&answer))
		_, err = answer.ReadFrom(got.Body)
		ts.Check(err)
		ts.Check(got.Body.Close())
		if *until == "" && (got.StatusCode >= 400) != neg {
			ts.Fatalf("%s", answer.String())
		}
		return want.Match(answer.Bytes())
	}))
	_, err := answer.WriteTo(ts.Stdout())
	ts.Check(err)
}

// serveMany serves nodes with 100,000 locks and a queue of 10,000: the page and the metrics answer,
// in little memory.
func serveMany(t *testing.T, nodes string) {
	began := time.Now()
	s := serveNodes(t, nodes)
	eventually(t, "a survey", func() bool {
		_, body, err := fetch(s.url + "/metrics")
		return err == nil && strings.Contains(body, "\nquorumlock_survey_complete 0\n")
	})
	t.Logf("the first survey: %v", time.Since(began).Round(time.Millisecond))
	for path, want := range map[string]string{
		"/":                    ">long<",                             // first, though found last
		"/?page=2":             "101 to 200 of 100",                  // 1000 or 1001
		"/?match=long":         "1 to 1 of 1",                        //
		"/metrics":             "\nquorumlock_longest_queue 10000\n", //
		"/api/top":             `"waiting":10000`,
		"/api/locks":           `"waiting":10000`,
		"/api/lock?name=long":  `"waiting":10000`,
		"/lock?name=long":      "And 9900 more",
		"/lock?name=lock:9999": "none in the last few minutes",
	} {
		began := time.Now()
		status, body, err := fetch(s.url + path)
		if err != nil || status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: status %d, %v, nothing of %q in\n%.2000s", path, status, err, want, body)
		}
		t.Logf("%s: %v, %d KB", path, time.Since(began).Round(time.Millisecond), len(body)/1000)
	}
	if memory := peak(t, s.Process.Pid); memory > maxMemory {
		t.Errorf("%d KB of memory, want at most %d", memory, maxMemory)
	} else {
		t.Logf("%d MB", memory/1000)
	}
}

// peak is the highest memory of a process, in KB.
func peak(t *testing.T, pid int) (kb int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	testkit.Must(t, err, "the status of %d", pid)
	m := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no peak in %s", text)
	}
	_, _ = fmt.Sscan(string(m[1]), &kb)
	return kb
}
