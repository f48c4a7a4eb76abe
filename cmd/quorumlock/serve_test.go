package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"

	"github.com/quorumlock/quorumlock"
)

// bubble runs a test with a cluster of three servers inside the process, in virtual time.
func bubble(t *testing.T, f func(t *testing.T, servers []*embedded.Server, c *cluster)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		servers, nodes := testkit.Nodes(t, 3)
		f(t, servers, &cluster{testkit.Of(t, nodes), nodes, 2, ""})
	})
}

// holdAt makes a lock that is held.
func holdAt(servers []*embedded.Server, name, owner string) {
	for _, s := range servers {
		s.Redis.HSet(name, owner, "1", "mode", "mutex")
		s.Redis.SetTTL(name, time.Hour)
	}
}

func newTestObserver(c *cluster, named ...string) *observer {
	return newObserver(c, &serveCommand{Interval: time.Second, CheckInterval: time.Minute, History: 10 * time.Minute, Limit: 1000, MetricsLock: named})
}

// lookOnce takes every look once.
func (o *observer) lookOnce(ctx context.Context) {
	o.lookAtNodes(ctx)
	o.lookAtLocks(ctx)
	o.checkNodes(ctx)
}

// get returns the answer of the site.
func get(t *testing.T, h http.Handler, path string) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String()
}

// A survey waits for a frozen node once to search it, and once to inspect the locks, for any number
// of locks.
func TestAFrozenNodeDelaysASurveyByItsTimeoutTwice(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*embedded.Server, c *cluster) {
		const locks = 4 * burst
		for i := range locks {
			holdAt(servers, fmt.Sprintf("lock-%d", i), "a:1")
		}
		testkit.Must(t, testkit.Err(c.Ready(t.Context())), "all are connected")
		servers[0].Stall()
		began := time.Now()
		s := newSurvey(c, "", 0)
		if err := s.run(t.Context(), func(lockView) error { return nil }); err != nil || s.Locks != locks {
			t.Errorf("%d locks, want %d: %v", s.Locks, locks, err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %v of the bubble's time", took)
		}
		servers[0].Resume()
	})
}

// A lock with waiters is found among any number of locks.
func TestASurveyFindsTheQueuesBeyondItsLimit(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*embedded.Server, c *cluster) {
		for i := range 40 {
			holdAt(servers, fmt.Sprintf("lock-%d", i), "a:1")
		}
		held := testkit.Lock(t, c.Mutex("zz"))
		ctx, leave := context.WithCancel(t.Context())
		left := testkit.Go(func() error { return testkit.Err(c.Mutex("zz").Lock(ctx)) })
		synctest.Wait()
		w := newSpotter(c, "", 10)
		w.brief = true
		locks, more, _, err := w.lookAtLocks(t.Context())
		if err != nil || !more || len(locks) < 10 || len(locks) > 11 || locks[0].Name != "zz" || locks[0].State.Waiting != 1 {
			t.Errorf("%d locks, more: %v, %v; the first is %+v", len(locks), more, err, locks[0])
		}
		leave()
		testkit.Is(t, <-left, context.Canceled, "a waiter that leaves")
		testkit.Unlock(t, held)
	})
}

// The page shows any name or owner as text.
func TestThePageShowsHostileNamesAsText(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*embedded.Server, c *cluster) {
		names := []string{"</title><script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "javascript:alert(1)", "a\x1b[2Jb", "\u202egnp.exe", "bad\xffutf8", "{{.Error}}", "--><!--", "'`${1}"}
		for _, n := range names {
			holdAt(servers, n, "<script>alert(2)</script>\x1b\u202e:1")
		}
		o := newTestObserver(c, names...)
		o.lookOnce(t.Context())
		site := newSite(o)
		for _, path := range append([]string{"/", "/?match=%3Cscript%3E%1b%e2%80%ae", "/metrics", "/api/top", "/api/locks"}, links(t, site)...) {
			status, body := get(t, site, path)
			if status != 200 {
				t.Errorf("%s: status %d: %s", path, status, body)
			}
			if path == "/metrics" { // Prometheus reads any bytes
				continue
			}
			bad := []string{"\x1b", "\u202e", "\xff"}
			if !strings.HasPrefix(path, "/api") {
				bad = append(bad, "<script>", "<img", "onerror=alert(1)>", `href="javascript`, "{{")
				body = strings.ReplaceAll(body, "{{.Error}}", "") // the name of a lock
			}
			for _, b := range bad {
				if strings.Contains(body, b) {
					t.Errorf("%s has %q in\n%s", path, b, body)
				}
			}
		}
		testkit.Equal(t, len(links(t, site)), len(names), "locks on the page")
	})
}

// links are the addresses of the locks on the page.
func links(t *testing.T, site http.Handler) (paths []string) {
	_, body := get(t, site, "/")
	for _, m := range regexp.MustCompile(`<a href="(lock\?[^"]+)"`).FindAllStringSubmatch(body, -1) {
		paths = append(paths, "/"+strings.ReplaceAll(m[1], "&amp;", "&"))
	}
	return paths
}

// An unknown value is not 0.
func TestMetricsOfLocksAreAbsentWhileTheyAreNotKnown(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*embedded.Server, c *cluster) {
		holdAt(servers, "x", "a:1")
		o := newTestObserver(c, "x")
		site := newSite(o)
		about := func(when string, want ...string) {
			t.Helper()
			_, body := get(t, site, "/metrics")
			for _, w := range want {
				absent, ok := strings.CutPrefix(w, "no ")
				if w = "\n" + absent; strings.Contains(body, w) == ok {
					t.Errorf("%s, of %q: %v in\n%s", when, absent, !ok, body)
				}
			}
		}
		about("before the first look", "quorumlock_nodes 3\n", "quorumlock_surveys_total 0\n", "no quorumlock_node_up", "no quorumlock_locks{", "no quorumlock_node_fit", "no quorumlock_survey_timestamp")
		if status, _ := get(t, site, "/readyz"); status != 503 {
			t.Errorf("ready before the first look: %d", status)
		}
		o.lookOnce(t.Context())
		about("after a look", "quorumlock_nodes_to_spare 1\n", `quorumlock_locks{kind="mutex"} 1`, `quorumlock_locks{kind="free"} 0`, `quorumlock_lock_held{lock="x"} 1`, "quorumlock_longest_hold_seconds 0\n", `quorumlock_node_fit{node="node-1"} 1`)
		time.Sleep(90 * time.Second)
		o.lookOnce(t.Context())
		about("later", "quorumlock_longest_hold_seconds 90\n", `quorumlock_lock_hold_seconds{lock="x"} 90`)
		servers[0].Kill()
		o.lookOnce(t.Context())
		about("with a node down", `quorumlock_node_up{node="node-1"} 0`, `quorumlock_node_failures_total{node="node-1"} 1`, "quorumlock_nodes_to_spare 0\n", `no quorumlock_node_round_trip_seconds{node="node-1"}`,
			`quorumlock_node_fit{node="node-1"} 0`, `quorumlock_finding{kind="unreachable",node="node-1",severity="warning"} 1`, `quorumlock_locks{kind="mutex"} 1`)
		servers[1].Kill()
		o.lookOnce(t.Context())
		about("without a quorum", "quorumlock_nodes_to_spare -1\n", "no quorumlock_locks{", "no quorumlock_lock_held", "no quorumlock_oldest_wait", "quorumlock_survey_errors_total 1\n", "quorumlock_survey_timestamp_seconds ",
			`quorumlock_finding{kind="no_quorum",node="",severity="failure"} 1`)
		testkit.Restart(servers[:2]...)
		time.Sleep(2 * time.Second)
		o.lookOnce(t.Context())
		about("and again", "quorumlock_nodes_to_spare 1\n", `quorumlock_locks{kind="mutex"} 1`)
		if status, _ := get(t, site, "/readyz"); status != 200 {
			t.Errorf("not ready: %d", status)
		}
		time.Sleep(5 * time.Minute)
		if status, body := get(t, site, "/healthz"); status != 503 || !strings.Contains(body, "last looked at") {
			t.Errorf("healthy, though nothing looks any more: %d %s", status, body)
		}
	})
}

// The metrics are those of the documentation, and follow the conventions of Prometheus.
func TestMetricsAreDocumented(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*embedded.Server, c *cluster) {
		holdAt(servers, "x", "a:1")
		servers[2].Configure("appendfsync", "everysec")
		o := newTestObserver(c, "x")
		o.lookOnce(t.Context())
		families, err := newRegistry(o).Gather()
		testkit.Must(t, err, "gather the metrics")
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		testkit.OK(t, err, "lint")
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, "quorumlock_") {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
		doc, err := os.ReadFile("../../docs/tool.md")
		testkit.Must(t, err, "the documentation")
		documented := make(map[string]string)
		for _, m := range regexp.MustCompile("(?m)^\\| `(quorumlock_[a-z_]+)` \\| (gauge|counter) \\|([^|]*)\\|").FindAllStringSubmatch(string(doc), -1) {
			labels := regexp.MustCompile("[a-z]+").FindAllString(m[3], -1)
			slices.Sort(labels)
			documented[m[1]] = fmt.Sprint(m[2], labels)
		}
		served := 0
		for _, f := range families {
			name := f.GetName()
			if !strings.HasPrefix(name, "quorumlock_") {
				continue
			}
			var labels []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, l.GetName())
			}
			testkit.Equal(t, fmt.Sprint(strings.ToLower(f.GetType().String()), labels), documented[name], "%s, as documented", name)
			delete(documented, name)
			served++
		}
		for name := range documented {
			t.Errorf("%s is documented and not served", name)
		}
		testkit.Equal(t, served, len(described), "metrics that are served")
	})
}

// heldBy returns a lock as a survey finds it.
func heldBy(name, owner string) *topLock {
	return &topLock{lockView: lockView{Name: name, Held: true, State: quorumlock.State{Owner: quorumlock.Owner(owner)}}}
}

func TestTheTimelineKeepsWhoHeldWhat(t *testing.T) {
	h := newHistory(10 * time.Minute)
	at := func(s int) time.Time { return h.began.Add(time.Duration(s) * time.Second) }
	h.noteLocks([]*topLock{heldBy("x", "a"), heldBy("y", "b")}, true, at(0))
	h.noteLocks([]*topLock{heldBy("x", "a")}, true, at(2))
	h.noteLocks(nil, false, at(4)) // the holders are unknown
	h.noteLocks([]*topLock{heldBy("x", "c")}, true, at(6))
	rows, left := h.rows([]string{"x"}, "", 10)
	if len(rows) != 2 || left != 0 || rows[0].name != "x" || rows[1].name != "y" {
		t.Fatalf("%+v, %d left", rows, left)
	}
	want := []span{{"a", "a", at(0), at(6)}, {"c", "c", at(6), time.Time{}}}
	if !slices.Equal(rows[0].spans, want) || !slices.Equal(rows[1].spans, []span{{"b", "b", at(0), at(2)}}) || !slices.Equal(h.blind.spans, []span{{"failed", "failed", at(4), at(6)}}) {
		t.Errorf("%+v, blind %+v", rows, h.blind.spans)
	}
	if rows, left := h.rows(nil, "y", 0); len(rows) != 0 || left != 1 {
		t.Errorf("%+v, %d left", rows, left)
	}
	if w := h.window(at(90)); w != 2*time.Minute {
		t.Errorf("a window of %v", w)
	}
	h.noteLocks([]*topLock{heldBy("x", "c")}, true, at(700)) // y and a are too old to keep
	if rows, _ := h.rows(nil, "", 10); len(rows) != 1 || len(rows[0].spans) != 1 {
		t.Errorf("it keeps %+v", rows)
	}
}

func TestTheTimelineIsBounded(t *testing.T) {
	h := newHistory(time.Hour)
	for look := range 60 {
		var locks []*topLock
		for i := range 1000 {
			locks = append(locks, heldBy(fmt.Sprintf("lock-%d-%d", look, i), "a:1"))
		}
		h.noteLocks(locks, true, h.began.Add(time.Duration(look)*time.Second))
	}
	spans := 0
	for _, l := range h.locks {
		spans += len(l.spans)
	}
	if spans > maxSpans+1000 || spans < maxSpans/2 {
		t.Errorf("%d spans", spans)
	}
	if h.locks["lock-59-0"] == nil || h.locks["lock-0-0"] != nil {
		t.Error("it is not the oldest that went")
	}
}

func TestTheTimelineForgetsWhileNothingIsKnown(t *testing.T) {
	h := newHistory(time.Minute)
	for look := range 1000 { // a node fails and returns, and no survey succeeds
		at := h.began.Add(time.Duration(look) * time.Second)
		h.noteNodes([]topNode{{Node: "a", OK: look%2 == 0}}, at)
		h.noteLocks(nil, false, at)
	}
	if n := len(h.nodes[0].spans); n > 31 {
		t.Errorf("%d spans of a node, want those of a minute", n)
	}
}

// Thousands of short holds are a page that a browser loads every two seconds.
func TestAPageWithManyHoldsIsSmall(t *testing.T) {
	bubble(t, func(t *testing.T, _ []*embedded.Server, c *cluster) {
		o := newTestObserver(c)
		o.past.began = o.past.began.Add(-o.past.keep)
		now := o.past.began
		for look := range 1000 { // all locks change hands at each that is not blind
			now = now.Add(600 * time.Millisecond)
			var locks []*topLock
			for i := range maxRows {
				locks = append(locks, heldBy(fmt.Sprintf("lock-%d", i), fmt.Sprintf("client-%d-%d:1", i, look)))
			}
			o.past.noteNodes([]topNode{{Node: "a", OK: look%2 == 0}}, now)
			o.past.noteLocks(locks, look%3 > 0, now)
		}
		time.Sleep(time.Until(now))
		_, body := get(t, newSite(o), "/")
		if len(body) > 600_000 {
			t.Errorf("the page has %d bytes", len(body))
		}
		rows := strings.Count(body, "<tr><th scope=\"row\"><bdi>")
		if rows != maxText || !strings.Contains(body, "13320 earlier ones are left out") || !strings.Contains(body, "client-0-998:1") {
			t.Errorf("%d rows of text, want the latest %d: %s", rows, maxText, regexp.MustCompile(`[0-9]+ earlier`).FindString(body))
		}
	})
}

func TestHoldsThatAreCloseTogetherAreOneBar(t *testing.T) {
	now := time.Now()
	ago := func(s int) time.Time { return now.Add(-time.Duration(s) * time.Second) }
	spans := []span{ // a second is 7.6 units
		{"a", "a", ago(90), ago(60)}, {"b", "b", ago(50), ago(50)}, {"c", "c", ago(50), ago(40)}, {"d", "d", ago(40), time.Time{}},
	}
	p := draw(nil, []track{{name: "x", spans: spans}}, track{}, 0, now, 100*time.Second)
	var drawn []string
	for _, b := range p.Bars {
		drawn = append(drawn, fmt.Sprintf("%s at %v to %v", b.Label, b.X, b.X+b.W))
	}
	if want := []string{"a at 316 to 544", "c at 620 to 696", "d at 696 to 1000"}; !slices.Equal(drawn, want) {
		t.Errorf("drawn: %q, want %q", drawn, want)
	}
	if title := p.Bars[1].Title; !strings.Contains(title, "x: c, ") || !strings.HasSuffix(title, ", and 1 shorter") {
		t.Errorf("the title of two holds is %q", title)
	}
}

func TestHoldsThatOverlapAreDrawnBesideEachOther(t *testing.T) {
	t0 := time.Now()
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	lanes, of := arrange([]span{{from: at(0), to: at(4)}, {from: at(1)}, {from: at(4), to: at(5)}, {from: at(4)}})
	if lanes != 3 || !slices.Equal(of, []int{0, 1, 0, 2}) {
		t.Errorf("%d lanes, %v", lanes, of)
	}
}

func TestOnlyNamesOfThisMachineAreLocal(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:8379": true, "127.0.0.1": true, "127.0.0.1:80": true, "127.9.9.9:1": true, "[::1]:8379": true, "[::1]": true, "::1": true,
		"": false, "example.com": false, "localhost.example.com": false, "127.0.0.1.example.com:80": false, "10.0.0.1": false, "0.0.0.0": false,
	} {
		if isLocal(host) != want {
			t.Errorf("%q: %v", host, !want)
		}
	}
}

// from returns the answer of a gate to a request from an address.
func from(g *gate, address, path, password string) (status int) {
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)
	r.RemoteAddr = address + ":1234"
	if password != "" {
		r.SetBasicAuth("u", password)
	}
	g.ServeHTTP(w, r)
	return w.Code
}

// One address cannot use all the capacity, and all together are bounded.
func TestMoreRequestsThanCanBeAnsweredAreTurnedAway(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	g := newGate(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			entered <- struct{}{}
			<-leave
		}
	}), "", "", false)
	done := make(chan struct{})
	for i := range maxRequests / maxRequestsOf {
		address := fmt.Sprintf("10.0.0.%d", i)
		for range maxRequestsOf {
			go func() {
				from(g, address, "/", "")
				done <- struct{}{}
			}()
			<-entered
		}
		if status := from(g, address, "/other", ""); status != http.StatusServiceUnavailable {
			t.Errorf("one more from %s: status %d", address, status)
		}
		if status := from(g, "10.0.1.0", "/other", ""); (status == http.StatusOK) != (i+1 < maxRequests/maxRequestsOf) {
			t.Errorf("from another address, beside %d: status %d", i+1, status)
		}
	}
	if status := from(g, "10.0.0.1", "/healthz", ""); status != http.StatusOK {
		t.Errorf("it is taken for dead because it is busy: status %d", status)
	}
	close(leave)
	for range maxRequests {
		<-done
	}
	if status := from(g, "10.0.0.1", "/other", ""); status != http.StatusOK || len(g.busy) != 0 || g.all != 0 {
		t.Errorf("afterwards: status %d, %d, %v", status, g.all, g.busy)
	}
}

func TestPasswordsCannotBeGuessedFast(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := newGate(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "u", "correct horse", false)
		expect := func(when, address, password string, want int) {
			t.Helper()
			if status := from(g, address, "/", password); status != want {
				t.Errorf("%s: status %d, want %d", when, status, want)
			}
		}
		for i := range 2 * maxWrong {
			expect("without a password", "[2001:db8::1]", "", http.StatusUnauthorized)
			expect("the right one", "10.0.0.1", "correct horse", http.StatusOK)
			if i < maxWrong {
				expect("a wrong one", fmt.Sprintf("[2001:db8::%x]", i), "guess", http.StatusUnauthorized)
			}
		}
		expect("a wrong one too many", "[2001:db8::ffff]", "guess", http.StatusTooManyRequests)
		expect("the right one, after too many", "[2001:db8::1]", "correct horse", http.StatusTooManyRequests)
		expect("the right one, from elsewhere", "[2001:db8:1::1]", "correct horse", http.StatusOK)
		time.Sleep(forgiveAfter)
		expect("the right one, later", "[2001:db8::1]", "correct horse", http.StatusOK)
		for i := range 2 * maxWrongFrom {
			from(g, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), "/", "guess")
		}
		if len(g.wrong) > maxWrongFrom {
			t.Errorf("%d addresses are remembered", len(g.wrong))
		}
	})
}

// A server with many connections needs long to list them.
func TestFewChecksAskForTheClientsOfTheNodes(t *testing.T) {
	bubble(t, func(t *testing.T, servers []*embedded.Server, c *cluster) {
		other, _ := testkit.Another(t, servers[:2])
		for _, c := range []*redlock.Client{c.Client, other} {
			testkit.Must(t, testkit.Err(c.Ready(t.Context())), "Ready")
		}
		o := newTestObserver(c)
		finds := func() bool {
			o.checkNodes(t.Context())
			_, check, _, _ := o.seen()
			return slices.ContainsFunc(check.health.Findings, func(f redlock.Finding) bool { return f.Kind == redlock.FindingOtherList })
		}
		for i := range clientsEvery {
			if !finds() {
				t.Errorf("check %d has forgotten the other list", i)
			}
			if asked := slices.ContainsFunc(o.check.health.Nodes, func(n redlock.NodeReport) bool { return len(n.Status.Clients) > 0 }); asked != (i == 0) {
				t.Errorf("check %d asked for clients: %v", i, asked)
			}
		}
		testkit.Kill(servers...)
		if !finds() {
			t.Error("a check that no node answers has forgotten the other list")
		}
		testkit.OK(t, other.Close(), "Close")
		testkit.Restart(servers[1:]...)
		for range clientsEvery - 1 {
			if !finds() {
				t.Error("a check that does not ask for clients has forgotten the other list")
			}
		}
		if finds() {
			t.Errorf("after %d checks, it has not seen that the client is gone", clientsEvery)
		}
	})
}

// Certificates and passwords are rotated while serve runs: a new connection gets the present ones.
// Files that cannot be read, as in the middle of a change, leave the last ones in use.
func TestServeReadsItsFilesAgain(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	testkit.Must(t, os.WriteFile(file("password"), []byte("first secret\n"), 0o600), "WriteFile")
	testkit.Certificate(t, dir, "server", nil, nil)
	a := &access{HTTPSCert: file("server.pem"), HTTPSKey: file("server.key"), User: "u", PasswordFile: file("password")}
	config, err := a.tls()
	testkit.Must(t, err, "the files of the server")
	g := newGate(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "u", "first secret", false)
	g.reread = a.password
	s := httptest.NewUnstartedServer(g)
	s.TLS, s.Config.ErrorLog = config, log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	check := func(what string, want []byte, password string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodGet, s.URL, nil)
		testkit.Must(t, err, "NewRequest")
		r.SetBasicAuth("u", password)
		all := &tls.Config{InsecureSkipVerify: true} // the test compares the certificate itself
		got, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: all, DisableKeepAlives: true}}).Do(r)
		testkit.Must(t, err, "%s", what)
		defer got.Body.Close() //nolint:errcheck // it is empty
		testkit.Equal(t, got.StatusCode, http.StatusOK, "%s: status with %q", what, password)
		if !slices.Equal(got.TLS.PeerCertificates[0].Raw, want) {
			t.Errorf("%s: another certificate", what)
		}
	}
	raw := func() []byte {
		pair, err := tls.LoadX509KeyPair(file("server.pem"), file("server.key"))
		testkit.Must(t, err, "LoadX509KeyPair")
		return pair.Certificate[0]
	}
	first := raw()
	check("before", first, "first secret")
	testkit.Must(t, os.Remove(file("server.key")), "Remove")
	testkit.Must(t, os.WriteFile(file("password"), nil, 0o600), "WriteFile")
	check("without a key", first, "first secret")
	testkit.Certificate(t, dir, "server", nil, nil)
	testkit.Must(t, os.WriteFile(file("password"), []byte("second secret\n"), 0o600), "WriteFile")
	check("after", raw(), "second secret")
}

// With --https-client-ca only clients with a certificate of that authority are admitted.
func TestOnlyClientsWithACertificateComeIn(t *testing.T) {
	dir := t.TempDir()
	ca, caKey := testkit.Certificate(t, dir, "ca", nil, nil)
	testkit.Certificate(t, dir, "server", ca, caKey)
	testkit.Certificate(t, dir, "client", ca, caKey)
	testkit.Certificate(t, dir, "stranger", nil, nil)
	file := func(name string) string { return filepath.Join(dir, name) }
	config, err := (&access{HTTPSCert: file("server.pem"), HTTPSKey: file("server.key"), HTTPSClients: file("ca.pem")}).tls()
	testkit.Must(t, err, "the files of the server")
	s := httptest.NewUnstartedServer(newGate(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }), "", "", false))
	s.TLS, s.Config.ErrorLog = config, log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	for who, want := range map[string]bool{"client": true, "stranger": false, "": false} {
		own := &tls.Config{RootCAs: roots}
		if who != "" {
			pair, err := tls.LoadX509KeyPair(file(who+".pem"), file(who+".key"))
			testkit.Must(t, err, "the certificate of %s", who)
			own.Certificates = []tls.Certificate{pair}
		}
		r, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: own, DisableKeepAlives: true}}).Get(s.URL)
		if (err == nil) != want {
			t.Errorf("%q: %v", who, err)
		}
		if err == nil {
			_ = r.Body.Close()
		}
	}
	for _, bad := range []access{{HTTPSCert: file("server.pem"), HTTPSKey: file("client.key")}, {HTTPSCert: file("server.pem"), HTTPSKey: file("server.key"), HTTPSClients: file("ca.key")}} {
		if _, err := bad.tls(); err == nil || !strings.Contains(err.Error(), "--https-c") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
