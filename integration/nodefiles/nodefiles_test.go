//go:build unix

// Package nodefiles tests the files in contrib/nodes that people copy, the units in contrib/jobs, and
// servers with the settings of the Helm chart.
package nodefiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.yaml.in/yaml/v3"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/freeport"
	"github.com/quorumlock/quorumlock/internal/testkit/require"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

const files = "../../contrib/nodes/"

// patient has long limits, for servers that sync to the disk of a busy machine.
var patient = []quorumlock.Option{quorumlock.WithTTL(time.Minute), quorumlock.WithNodeTimeout(10 * time.Second)}

// need skips a test where a program is not installed.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		require.Skip(t, "QUORUMLOCK_REQUIRE_DATABASES", program+" is not installed")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rendering has the tested fields of a rendering of the Helm chart. They are from several objects.
type rendering struct {
	Data       map[string]string
	StringData map[string]string `yaml:"stringData"`
	Spec       struct {
		Template struct {
			Spec struct {
				Containers []struct {
					ReadinessProbe struct{ Exec struct{ Command []string } } `yaml:"readinessProbe"`
				}
			}
		}
	}
}

func (r rendering) probe() []string {
	return r.Spec.Template.Spec.Containers[0].ReadinessProbe.Exec.Command
}

// rendered reads a rendering that the tests of integration/chart compare with the chart.
func rendered(t *testing.T, name string) (r rendering) {
	t.Helper()
	_, objects, _ := strings.Cut(read(t, "../../integration/chart/testdata/"+name), "---\n# config.yaml\n")
	d := yaml.NewDecoder(strings.NewReader(objects))
	for {
		err := d.Decode(&r) // the objects have different fields
		if errors.Is(err, io.EOF) {
			return r
		}
		must(t, err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(files + name)
	must(t, err)
	return string(b)
}

// The user of the rendering has the rights of a client, and those of checks.
func TestTheUserOfLocksHasTheLeastRights(t *testing.T) {
	users := rendered(t, "small.yaml").StringData["users.acl"]
	want := " " + strings.Join(wire.ACL("", ""), " ") + " +config|get +client|list\n"
	if !strings.HasSuffix(users, want) {
		t.Errorf("the users are\n%s, and want\n%s: run go test -update in integration/chart", users, want)
	}
}

// ofChannels matches the rules that servers before Redis 6.2 do not know.
var ofChannels = regexp.MustCompile(` (&\S+|resetchannels)`)

// usersOf returns the users of the file, with the rules for the installed server, and an admin who
// reads the log of denials.
func usersOf(t *testing.T, file string) string {
	t.Helper()
	out, err := exec.Command("redis-server", "--version").Output()
	var major, minor int
	if m := regexp.MustCompile(`v=(\d+)\.(\d+)`).FindStringSubmatch(string(out)); m != nil {
		major, _ = strconv.Atoi(m[1])
		minor, _ = strconv.Atoi(m[2])
	} else {
		t.Fatalf("redis-server --version: %q, %v", out, err)
	}
	if major == 7 && minor < 2 {
		file = strings.ReplaceAll(file, " +client|setinfo", "")
	}
	if major == 6 {
		file = strings.ReplaceAll(file, " +info +ping", " +info +ping +hello")
	}
	if major == 6 && minor < 2 {
		file = ofChannels.ReplaceAllString(file, "")
	}
	return file + "user admin on >change-me ~* +@all\n"
}

// A server with the settings and users of redis.conf or of the chart is fit for locks: Diagnose finds
// no problem, and the server denies no command of the user locker.
func TestServersWithTheseSettingsAreFit(t *testing.T) {
	need(t, "redis-server")
	dir := t.TempDir()
	ca, _ := testkit.Certificate(t, dir, "tls", nil, nil)
	authorities := x509.NewCertPool()
	authorities.AddCert(ca)
	certificate := strings.NewReplacer("/etc/quorumlock-tls/tls.crt", dir+"/tls.pem", "/etc/quorumlock-tls/tls.key", dir+"/tls.key")
	small, large := rendered(t, "small.yaml"), rendered(t, "large.yaml")
	for _, tt := range []struct {
		name, scheme, conf string
		chart              rendering
	}{
		{"redis.conf", "redis", read(t, "redis.conf"), small},
		{"small.yaml", "redis", small.Data["redis.conf"], small},
		{"large.yaml", "rediss", certificate.Replace(large.Data["redis.conf"]), large},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr := serve(t, tt.conf, usersOf(t, tt.chart.StringData["users.acl"]), tt.chart.probe())
			secure := &tls.Config{RootCAs: authorities}
			if tt.scheme == "redis" {
				secure = nil
			}
			n, err := node.Dial(tt.scheme+"://locker:a-long-random-password@"+addr, node.WithTLSConfig(secure))
			must(t, err)
			c := testkit.Of(t, []*node.Node{n}, patient...)
			health, err := c.Diagnose(t.Context())
			testkit.OK(t, err, "Diagnose")
			for _, f := range health.Findings {
				if f.Kind != redlock.FindingOneNode { // a fleet has more of them
					t.Errorf("%v", f)
				}
			}
			testkit.Unlock(t, testkit.Lock(t, c.Mutex("x")))
			nothingDenied(t, adminOf(t, addr, secure), "locker")
		})
	}
}

func adminOf(t *testing.T, addr string, secure *tls.Config) *redis.Client {
	admin := redis.NewClient(&redis.Options{Addr: addr, Username: "admin", Password: "change-me", TLSConfig: secure})
	t.Cleanup(func() { _ = admin.Close() })
	return admin
}

func nothingDenied(t *testing.T, admin *redis.Client, user string) {
	t.Helper()
	denied, err := admin.ACLLog(t.Context(), 10).Result()
	must(t, err)
	for _, d := range denied {
		if d.Username == user {
			t.Errorf("denied: %s of %s", d.Reason, d.Object)
		}
	}
}

// A client with the rules for its prefix uses every kind of lock, whatever braces the name has, and
// the server denies it nothing.
func TestTheRulesForAPrefixSuffice(t *testing.T) {
	need(t, "redis-server")
	for _, prefix := range []string{"a:", "{a}:"} {
		t.Run(prefix, func(t *testing.T) {
			addr := serve(t, read(t, "redis.conf"), usersOf(t, "user default off\nuser probe on nopass resetkeys resetchannels -@all +ping\n"+
				"user a reset on >change-me "+strings.Join(wire.ACL(prefix, "a."), " ")+"\n"), rendered(t, "small.yaml").probe())
			admin := adminOf(t, addr, nil)
			var clients [2]*redlock.Client
			for i := range clients {
				n, err := node.Dial("redis://a:change-me@" + addr)
				must(t, err)
				clients[i] = testkit.Of(t, []*node.Node{n}, append(patient, quorumlock.WithPrefix(prefix), quorumlock.WithLabel("a.host"))...)
			}
			for _, name := range []string{"x", "{x}", "x{y}"} {
				handOver(t, admin, clients[0], clients[1], prefix, name)
				everyKind(t, clients[0], name)
			}
			nothingDenied(t, admin, "a")
			if _, err := clients[0].Mutex("x", quorumlock.WithPrefix("b:")).TryLock(t.Context()); err == nil || errors.Is(err, quorumlock.ErrMisuse) {
				t.Errorf("TryLock with another prefix: %v, want it denied", err)
			}
		})
	}
}

// handOver unlocks a mutex of one client while the other one waits for it.
func handOver(t *testing.T, admin *redis.Client, from, to *redlock.Client, prefix, name string) {
	t.Helper()
	lease := testkit.Lock(t, from.Mutex(name))
	next := make(chan *quorumlock.Lease, 1)
	go func() {
		l, err := to.Mutex(name).Lock(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Error(err)
		}
		next <- l
	}()
	for limit := time.Now().Add(20 * time.Second); admin.ZCard(t.Context(), wire.QueueKey(prefix+name)).Val() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("nobody waits")
		}
	}
	testkit.Unlock(t, lease)
	testkit.Unlock(t, <-next)
}

// everyKind uses the locks of a client, of every kind.
func everyKind(t *testing.T, c *redlock.Client, name string) {
	t.Helper()
	ctx := t.Context()
	lease := testkit.Lock(t, c.Mutex(name))
	must(t, lease.Extend(ctx))
	must(t, testkit.Err(c.Inspect(ctx, name)))
	text, err := lease.Detach(ctx, time.Minute)
	must(t, err)
	lease, err = c.Attach(ctx, text)
	must(t, err)
	must(t, lease.UnlockAfter(ctx, time.Second))
	must(t, c.ForceUnlock(ctx, name))

	rw := c.RWMutex(name)
	testkit.Unlock(t, testkit.Lock(t, rw.RLocker()))
	writer, err := rw.Lock(ctx)
	must(t, err)
	must(t, rw.Downgrade(ctx, writer))
	testkit.Unlock(t, writer)

	lease, err = c.Semaphore(name+":semaphore", 3).LockN(ctx, 2)
	must(t, err)
	testkit.Unlock(t, lease)

	l := c.Latch(name+":latch", 1)
	must(t, l.Done(ctx, "1"))
	must(t, l.Wait(ctx))

	e := election.New(c.Mutex(name+":election"), "here")
	term, err := e.Campaign(ctx)
	must(t, err)
	must(t, term.Proclaim(ctx, "there"))
	must(t, testkit.Err(e.Leader(ctx)))
	must(t, term.Resign(ctx))
}

// serve starts a Redis server with a configuration, but at a port and in a directory of its own. It
// returns when the probe succeeds.
func serve(t *testing.T, conf, acl string, probe []string) (addr string) {
	t.Helper()
	dir := t.TempDir()
	addr, err := freeport.Addr()
	must(t, err)
	_, port, _ := net.SplitHostPort(addr)
	// A dir takes effect while the server still reads the file.
	conf = regexp.MustCompile(`(?m)^( *dir|aclfile) .*$`).ReplaceAllString(conf, "")
	conf = strings.ReplaceAll(conf, "port 6379", "port "+port)
	for name, text := range map[string]string{"redis.conf": conf, "users.acl": acl} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cmd := exec.Command("redis-server", filepath.Join(dir, "redis.conf"), "--bind", "127.0.0.1", "--dir", dir,
		"--aclfile", filepath.Join(dir, "users.acl"), "--logfile", filepath.Join(dir, "log"))
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	probe = slices.Concat(probe[:1], []string{"-p", port}, probe[1:])
	for limit := time.Now().Add(20 * time.Second); exec.Command(probe[0], probe[1:]...).Run() != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(limit) {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("redis-server does not answer:\n%s", log)
		}
	}
	return addr
}

func TestSystemdAcceptsTheUnits(t *testing.T) {
	need(t, "systemd-analyze")
	need(t, "redis-server") // a unit starts it
	for _, unit := range []string{"nodes/quorumlock-node.service", "jobs/quorumlock-job.service", "jobs/quorumlock-job.timer"} {
		file := filepath.Join(t.TempDir(), filepath.Base(unit))
		text := strings.NewReplacer("/usr/local/bin/quorumlock", "/bin/true").Replace(read(t, "../"+unit))
		must(t, os.WriteFile(file, []byte(text), 0o600))
		if unit == "jobs/quorumlock-job.timer" { // which names its service
			service := strings.Replace(file, ".timer", ".service", 1)
			must(t, os.WriteFile(service, []byte("[Service]\nExecStart=/bin/true\n"), 0o600))
		}
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", file).CombinedOutput()
		if err != nil || strings.Contains(string(out), filepath.Base(unit)+":") {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
	}
}
