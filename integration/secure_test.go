package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/node"
)

// The password has characters that must be encoded in a URL. The user has only the rights of locks.
const (
	user     = "locker"
	password = "p@ss/w:rd %40"
)

func TestTLSAndUserWithTheLeastPermissions(t *testing.T) {
	needUsers(t)
	t.Parallel() // on servers of its own
	authority, cert, key := certificates(t)
	trust := &tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS12}
	args := []string{"--port", "0", "--tls-port", "6379", "--tls-auth-clients", "no",
		"--tls-cert-file", "/tls/server.crt", "--tls-key-file", "/tls/server.key", "--tls-ca-cert-file", "/tls/server.crt",
		"--requirepass", "admin"}
	s := start(t, &redis.Options{TLSConfig: trust, Password: "admin"}, args,
		withFile("/tls/server.crt", cert), withFile("/tls/server.key", key))
	allow(t, s, user, append(permissions, "on", ">"+password)...)

	secure := func(u *url.Userinfo) string { return (&url.URL{Scheme: "rediss", User: u, Host: s.addr}).String() }
	connect := func(rawURL string, c *tls.Config) *node.Node {
		t.Helper()
		n, err := node.Dial(rawURL, node.WithTLSConfig(c))
		must(t, err)
		t.Cleanup(func() { must(t, n.Close()) })
		return n
	}

	n := connect(secure(url.UserPassword(user, password)), trust)
	m := n.Mutex("secure", unhurried)
	lease, err := m.Lock(t.Context())
	must(t, err)
	waiting := make(chan error, 1)
	go func() {
		next, err := m.Lock(t.Context()) // waits, and so subscribes
		if err == nil {
			err = next.Unlock(t.Context())
		}
		waiting <- err
	}()
	eventually(t, patience, "the waiter listens", func() bool {
		channels, err := s.admin.PubSubChannels(t.Context(), "quorumlock_wake:*").Result()
		must(t, err)
		return len(channels) == 1
	})
	must(t, lease.Extend(t.Context()))
	must(t, lease.Unlock(t.Context()))
	must(t, <-waiting)
	if _, err := n.Inspect(t.Context(), "secure"); err != nil {
		t.Error(err)
	}
	denied, err := s.admin.ACLLog(t.Context(), 10).Result()
	must(t, err)
	for _, d := range denied {
		t.Errorf("denied: %s of %s", d.Reason, d.Object)
	}

	for name, bad := range map[string]*node.Node{
		"wrong password":        connect(secure(url.UserPassword(user, "guess")), trust),
		"unknown authority":     connect(secure(url.UserPassword(user, password)), &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}),
		"another server's name": connect(secure(url.UserPassword(user, password)), &tls.Config{RootCAs: authority, ServerName: "elsewhere", MinVersion: tls.VersionTLS12}),
	} {
		_, err := bad.Mutex("secure", unhurried).TryLock(t.Context())
		if err == nil {
			t.Errorf("%s: granted", name)
			continue
		}
		if strings.Contains(err.Error(), "guess") || strings.Contains(err.Error(), "p@ss") {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}
}

// An open connection changes to the user whose credentials the function returns. A refusal changes
// nothing.
func TestOpenConnectionsAuthenticateAgain(t *testing.T) {
	needUsers(t)
	t.Parallel() // on a server of its own
	s := start(t, &redis.Options{}, nil)
	for _, name := range []string{"first", "second"} {
		allow(t, s, name, append(permissions, "on", ">"+name)...)
	}
	var now atomic.Pointer[node.Credentials]
	now.Store(&node.Credentials{User: "first", Password: "first"})
	n, err := node.Dial("redis://"+s.addr, node.WithCredentials(func(context.Context) (node.Credentials, error) {
		c := *now.Load()
		c.Expires = time.Now() // again as early as possible
		return c, nil
	}))
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	lease, err := n.Mutex("x", unhurried).Lock(t.Context())
	must(t, err)
	pattern := regexp.MustCompile(`(?m)^id=(\d+) .*user=(first|second)\b`)
	connected := func() map[string]string { // users by connection
		list, err := s.admin.ClientList(t.Context()).Result()
		must(t, err)
		users := make(map[string]string)
		for _, m := range pattern.FindAllStringSubmatch(list, -1) {
			users[m[1]] = m[2]
		}
		return users
	}
	var before map[string]string
	eventually(t, patience, "one connection is left", func() bool {
		before = connected()
		return len(before) == 1
	})
	areAll := func(user string) bool { // the lane of renewals may have connected meanwhile
		users := connected()
		for id := range before {
			if users[id] != user {
				return false
			}
		}
		return true
	}
	refusals := func() int {
		denied, err := s.admin.ACLLog(t.Context(), 10).Result()
		must(t, err)
		count := int64(0)
		for _, d := range denied {
			count += d.Count
		}
		return int(count)
	}
	now.Store(&node.Credentials{User: "second", Password: "wrong"})
	eventually(t, patience, "AUTH is refused", func() bool { return refusals() > 0 })
	if !areAll("first") {
		t.Errorf("after a refusal: %v; before: %v", connected(), before)
	}
	now.Store(&node.Credentials{User: "second", Password: "second"})
	eventually(t, patience, "the user changes", func() bool { return areAll("second") })
	must(t, lease.Unlock(t.Context()))
}

// Without the permission, everything works. A server that knows the command logs a denial for each
// connection.
func TestServersThatKnowSetInfoLogADenialWithoutIt(t *testing.T) {
	needUsers(t)
	t.Parallel() // on a server of its own
	s := start(t, &redis.Options{}, nil)
	rules := slices.DeleteFunc(slices.Clone(permissions), func(rule string) bool { return rule == setInfo })
	allow(t, s, user, append(rules, "on", ">pass")...)
	n, err := node.Dial("redis://" + user + ":pass@" + s.addr)
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	lease, err := n.Mutex("x", unhurried).Lock(t.Context())
	must(t, err)
	must(t, lease.Unlock(t.Context()))
	denied := deniedTo(t, []*server{s}, user)
	// Redis 6 does not log the second word.
	if others := slices.ContainsFunc(denied, func(d string) bool { return !strings.Contains(d, ": command of client") }); others || (len(denied) > 0) != knowsSetInfo() {
		t.Errorf("denied: %q", denied)
	}
	if err := s.admin.ACLSetUser(t.Context(), user, setInfo).Err(); (err == nil) != knowsSetInfo() {
		t.Errorf("a rule with %s: %v", setInfo, err)
	}
}

// certificates returns an authority made for this test, with a certificate and a key for 127.0.0.1
// that it signed, as PEM.
func certificates(t *testing.T) (authority *x509.CertPool, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	ca, caKey := testkit.Certificate(t, dir, "ca", nil, nil)
	testkit.Certificate(t, dir, "server", ca, caKey)
	certPEM, err := os.ReadFile(filepath.Join(dir, "server.pem"))
	must(t, err)
	keyPEM, err := os.ReadFile(filepath.Join(dir, "server.key"))
	must(t, err)
	authority = x509.NewCertPool()
	authority.AddCert(ca)
	return authority, string(certPEM), string(keyPEM)
}
