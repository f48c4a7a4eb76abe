package promlock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/quorumlock/quorumlock"
	otellock "github.com/quorumlock/quorumlock/contrib/otel"
	promlock "github.com/quorumlock/quorumlock/contrib/prometheus"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/dbserver"
	"github.com/quorumlock/quorumlock/internal/testkit/freeport"
	"github.com/quorumlock/quorumlock/redlock"
)

// patience bounds every wait for something that is bound to happen.
const patience = 30 * time.Second

// A real Prometheus scrapes quorumlock serve and a service while nodes are killed. The right alerts
// fire, and no others. The rules are those of rules.yaml, except for the durations before an alert
// fires: rules_test.yaml checks these.
func TestAlertsFireWhenNodesAreKilled(t *testing.T) {
	need(t, "prometheus", "redis-server")
	servers, urls := nodes(t)
	serve := startServe(t, urls)
	services := make(map[string]string)
	var leases []*quorumlock.Lease
	for name, observe := range observers {
		lease, addr := startService(t, urls, name, observe)
		services[name], leases = addr, append(leases, lease)
	}
	p := startPrometheus(t, serve, services)

	eventually(p.t, "all are scraped", func() bool { return p.value(`sum(up)`) == 3 && p.value(`quorumlock_nodes_to_spare`) == 1 })
	for name := range services {
		eventually(p.t, "renewals are seen", func() bool { return p.value(`sum(rate(quorumlock_renewal_lag_seconds_count{job="`+name+`"}[1m]))`) > 0 })
	}
	p.fires() // nothing: before the first scrape, there is no look at the nodes
	p.staysAt()
	for name := range services {
		p.answersTheDashboard(t, name)
	}

	testkit.Must(t, servers[2].Close(), "Close")
	p.fires("QuorumlockQuorumAtRisk")
	p.staysAt("QuorumlockQuorumAtRisk")
	for _, lease := range leases {
		testkit.OK(t, context.Cause(lease.Context()), "the lease ended with one node of three")
	}

	testkit.Must(t, servers[1].Close(), "Close")
	p.fires("QuorumlockLockLost", "QuorumlockNoQuorum")
	p.staysAt("QuorumlockLockLost", "QuorumlockNoQuorum")
	for name := range services {
		if p.value(`count(ALERTS{alertname="QuorumlockLockLost", job="`+name+`"})`) < 1 {
			t.Errorf("no loss is seen in the service with %s", name)
		}
	}
}

// observers are the ways in which a service can have metrics.
var observers = map[string]func(r *client.Registry) (quorumlock.Observer, error){
	"otel": func(r *client.Registry) (quorumlock.Observer, error) {
		reader, err := exporter.New(exporter.WithRegisterer(r))
		if err != nil {
			return nil, err
		}
		return otellock.New(otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	},
	"promlock": func(r *client.Registry) (quorumlock.Observer, error) { return promlock.New(r) },
}

// nodes starts three Redis servers that are fit for locks.
func nodes(t *testing.T) (servers []*dbserver.Server, urls []string) {
	t.Helper()
	for range 3 {
		s, err := dbserver.Redis()
		testkit.Must(t, err, "Redis")
		t.Cleanup(func() { _ = s.Close() })
		admin := redis.NewClient(&redis.Options{Addr: s.Addr})
		defer admin.Close() //nolint:errcheck // of no interest
		eventually(t, "Redis answers", func() bool { return admin.Ping(t.Context()).Err() == nil })
		for name, value := range map[string]string{"appendonly": "yes", "appendfsync": "always"} {
			testkit.Must(t, admin.ConfigSet(t.Context(), name, value).Err(), "Err")
		}
		servers, urls = append(servers, s), append(urls, "redis://"+s.Addr)
	}
	return servers, urls
}

// startServe builds the tool, runs quorumlock serve, and returns its address.
func startServe(t *testing.T, urls []string) (addr string) {
	t.Helper()
	tool := filepath.Join(t.TempDir(), "quorumlock")
	build := exec.Command("go", "build", "-o", tool, ".")
	build.Dir = "../../cmd/quorumlock"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	addr = freeAddr(t)
	cmd := exec.Command(tool, "serve", "--listen", addr, "--interval", "500ms", "--check-interval", "1s", "--node-timeout", "5s") // so that a busy machine is no flapping node
	cmd.Env = append(os.Environ(), "QUORUMLOCK_NODES="+strings.Join(urls, ","))
	start(t, cmd)
	return addr
}

// startService runs a service that holds a lock all the time, and acquires another repeatedly, with
// an Observer. It returns the lease and the address of its metrics.
func startService(t *testing.T, urls []string, name string, observe func(*client.Registry) (quorumlock.Observer, error)) (*quorumlock.Lease, string) {
	t.Helper()
	registry := client.NewRegistry()
	observer, err := observe(registry)
	testkit.Must(t, err, "observe")
	option := quorumlock.WithObserver(observer)
	c, err := redlock.Dial(urls)
	testkit.Must(t, err, "Dial")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	web := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(func() {
		cancel()
		<-ended
		web.Close()
		_ = c.Close() // nodes were killed
	})
	lease, err := c.Mutex("leader of "+name, option).Lock(ctx)
	testkit.Must(t, err, "Lock")
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = quorumlock.Do(ctx, c.Mutex("orders of "+name, option), func(context.Context) error {
				first, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				_, _ = c.Mutex("orders of "+name, option).Lock(first) // it waits in vain
				return nil
			}) // it fails when nodes are killed
		}
	}()
	return lease, strings.TrimPrefix(web.URL, "http://")
}

// server is a Prometheus server.
type server struct {
	t    *testing.T
	addr string
}

func startPrometheus(t *testing.T, serve string, services map[string]string) *server {
	t.Helper()
	dir := t.TempDir()
	rules := regexp.MustCompile(`(?m)^( +for:) \w+$`).ReplaceAllString(read(t, "rules.yaml"), "$1 2s")
	if strings.Count(rules, "for: 2s") < 8 {
		t.Fatal("the rules are not as this test expects them")
	}
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
  - {job_name: serve, static_configs: [{targets: ["%s"]}]}
`, serve)
	for name, addr := range services {
		config += fmt.Sprintf("  - {job_name: %s, static_configs: [{targets: [%q]}]}\n", name, addr)
	}
	for name, text := range map[string]string{"rules.yaml": rules, "prometheus.yaml": config} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600), "WriteFile")
	}
	p := &server{t, freeAddr(t)}
	start(t, exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", p.addr, "--log.level", "warn"))
	return p
}

// get asks the API.
func (p *server) get(path string, into any) error {
	r, err := http.Get("http://" + p.addr + "/api/v1/" + path)
	if err != nil {
		return err
	}
	defer r.Body.Close() //nolint:errcheck // it is read whole
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, r.Status)
	}
	return json.NewDecoder(r.Body).Decode(into)
}

// query returns the values of an expression.
func (p *server) query(expr string) (values []string, err error) {
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	err = p.get("query?query="+url.QueryEscape(expr), &answer)
	for _, r := range answer.Data.Result {
		values = append(values, fmt.Sprint(r.Value[1]))
	}
	return values, err
}

// value is that of an expression that has one; -1 if it has none.
func (p *server) value(expr string) float64 {
	v := -1.0
	if values, err := p.query(expr); err == nil && len(values) == 1 {
		_, _ = fmt.Sscan(values[0], &v) // it stays -1
	}
	return v
}

// alerts are the names of the alerts that fire, or are about to.
func (p *server) alerts() []string {
	p.t.Helper()
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels struct{ Alertname string }
			}
		}
	}
	if err := p.get("alerts", &answer); err != nil {
		p.t.Fatal(err)
	}
	var names []string
	for _, a := range answer.Data.Alerts {
		names = append(names, strings.TrimSuffix(a.Labels.Alertname+" "+a.State, " firing"))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// fires returns when these alerts fire, and no others.
func (p *server) fires(want ...string) {
	p.t.Helper()
	var last []string
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the last alerts: %q, want %q", last, want)
		}
	}()
	eventually(p.t, "the alerts fire", func() bool { last = p.alerts(); return slices.Equal(last, want) })
}

// staysAt checks for a while that these alerts fire, and no others. On a busy machine, one look at
// the nodes may be too late, so that an alert is pending for a moment.
func (p *server) staysAt(want ...string) {
	p.t.Helper()
	for range 20 {
		firing := slices.DeleteFunc(p.alerts(), func(a string) bool { return strings.HasSuffix(a, " pending") })
		if !slices.Equal(firing, want) {
			p.t.Fatalf("alerts %q, want %q", firing, want)
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// answersTheDashboard checks that each query of the dashboard finds something for a job.
func (p *server) answersTheDashboard(t *testing.T, job string) {
	t.Helper()
	for _, q := range queries(t, job) {
		values, err := p.query(q)
		// no problems
		if err != nil || len(values) == 0 && !strings.Contains(q, "quorumlock_finding") {
			t.Errorf("%s: %q, %v", q, values, err)
		}
	}
}

// start starts a process that ends with the test. The output of the process goes to the test.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	testkit.Must(t, cmd.Start(), "Start")
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("%s:\n%s", cmd, out.String())
		}
	})
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Addr()
	testkit.Must(t, err, "Addr")
	return addr
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
