package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// FuzzNoPasswordIsEverShown puts passwords into URLs, encoded and not, and looks for them in all
// visible text of a node. Each contains s3cret or 31337, also before a character like #.
func FuzzNoPasswordIsEverShown(f *testing.F) {
	for _, special := range []string{"", "#", "?", "/", "@", ":", "%", "%2", "%zz", "[", "]", "\\", " ", "\n", "\x00", "&", "=", "+", "//", "/0#", "?db=", "#@", "@/", "/0?client_name=", "?client_name=", "é", "\xff"} {
		f.Add(special, special)
		f.Add(special, "")
		f.Add("", special)
		f.Add(special, "/")
		f.Add("/", special)
		f.Add("@", special)
	}
	templates := []string{"redis://user:%s@h:6379/0", "rediss://:%s@h", "unix://user:%s@/run/redis.sock", "redis://user:%s@", "user:%s@h", "http://user:%s@h", "redis://user:%s@h:port", "redis://user:%s@h?pool_size=x"}
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, marker := range []string{"s3cret", "31337"} {
			password := before + marker + after
			for _, template := range templates {
				for _, p := range []string{password, url.QueryEscape(password), url.PathEscape(password), url.UserPassword("", password).String()[1:]} {
					shown := seen(fmt.Sprintf(template, p))
					if strings.Contains(strings.ToLower(shown), marker) {
						t.Errorf("%q is shown as %q", fmt.Sprintf(template, p), shown)
					}
				}
			}
		}
	})
}

// seen is the visible text of the node at a URL, or of the error of Dial.
func seen(rawURL string) string {
	n, err := node.Dial(rawURL, node.WithDialer(func(_ context.Context, network, addr string) (net.Conn, error) {
		return nil, io.ErrUnexpectedEOF
	}))
	if err != nil {
		return fmt.Sprintf("%v %+v %#v", err, err, err.Error())
	}
	defer n.Close() //nolint:errcheck // it has no connection
	return fmt.Sprintf("%v %s", n, n.String())
}

// whatIsShown returns the errors and the log of a node that cannot be used.
func whatIsShown(t *testing.T, n *node.Node) string {
	t.Helper()
	var shown bytes.Buffer
	show := func(err error) {
		if err == nil {
			t.Error("it can be used")
		}
		fmt.Fprintf(&shown, "%v %+v\n", err, err)
	}
	_, err := n.Acquire(t.Context(), "x", alice, ttl, 1)
	show(err)
	_, err = transport.Of(n).Inspect(t.Context(), "x")
	show(err)
	logger := slog.New(slog.NewTextHandler(&shown, nil))
	_, err = n.Mutex("x", quorumlock.WithLogger(logger), quorumlock.WithWait(time.Second)).Lock(t.Context())
	show(err)
	if !strings.Contains(shown.String(), "trying again") {
		t.Errorf("nothing was logged:\n%s", shown.String())
	}
	return shown.String()
}

func TestAWrongPasswordIsNotShown(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		s.Redis.RequireUserAuth("billing", "another")
		secret := &tokens{user: "billing", now: "s3cret"}
		for want, n := range map[string]*node.Node{
			"WRONGPASS": dial(t, "redis://billing:s3cret@h", node.WithDialer(s.DialContext)),
			"WithCredentials: return a user and a password that it accepts: WRONGPASS": dial(t, "redis://h", node.WithDialer(s.DialContext), node.WithCredentials(secret.get)),
		} {
			if shown := whatIsShown(t, n); strings.Contains(shown, "s3cret") || !strings.Contains(shown, want) {
				t.Errorf("the password must not be shown, and %s must:\n%s", want, shown)
			}
		}
	})
}

// A server that does not know a command repeats its arguments, which for AUTH and HELLO are the
// password.
func TestAPasswordThatTheServerRepeatsIsNotShown(t *testing.T) {
	echo := &fake{answer: func(args []string) string {
		return "-ERR unknown command, with args beginning with: '" + strings.Join(args, "' '") + "'\r\n"
	}}
	for name, connect := range map[string]func(t *testing.T) *node.Node{
		"dialled": func(t *testing.T) *node.Node { return dial(t, "redis://billing:s3cret@h", node.WithDialer(echo.dial)) },
		"the caller's client": func(t *testing.T) *node.Node {
			return over(t, redis.NewClient(&redis.Options{Addr: "h:6379", Username: "billing", Password: "s3cret", Dialer: echo.dial}))
		},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			if shown := whatIsShown(t, connect(t)); strings.Contains(shown, "s3cret") {
				t.Error(shown)
			}
			t.Cleanup(func() { time.Sleep(2 * time.Second) }) // for go-redis's redial to see that the client is closed
		})
	}
}

func TestMissingPasswordIsNamed(t *testing.T) {
	for _, said := range []string{"NOAUTH Authentication required.", "ERR Protocol error: unauthenticated multibulk length"} {
		locktest.Run(t, said, func(t *testing.T) {
			n := dial(t, "redis://h", node.WithDialer(scripted("-"+said+"\r\n").dial))
			if _, err := n.Acquire(t.Context(), "x", alice, ttl, 1); err == nil || !strings.Contains(err.Error(), "the node wants a password") {
				t.Errorf("%q is told as %v", said, err)
			}
		})
	}
}

// Each new connection asks for the credentials, so a node outlives their rotation.
func TestCredentialsMayChange(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		type answer struct {
			password string
			err      error
		}
		var now atomic.Pointer[answer]
		now.Store(&answer{password: "one"})
		n := dial(t, "redis://h", node.WithDialer(s.DialContext), node.WithCredentials(func(context.Context) (node.Credentials, error) {
			return node.Credentials{User: "billing", Password: now.Load().password}, now.Load().err
		}))
		for _, password := range []string{"one", "two"} {
			now.Store(&answer{password: password})
			s.Redis.RequireUserAuth("billing", password)
			s.Restart(true) // its connections end
			settle(time.Second)
			mustAcquire(t, n, alice, 1)
		}
		now.Store(&answer{err: io.ErrUnexpectedEOF})
		s.Restart(true)
		settle(time.Second)
		_, err := n.Acquire(t.Context(), "x", alice, ttl, 1)
		if !errors.Is(err, io.ErrUnexpectedEOF) || !notSent(err) {
			t.Errorf("error %v, want that of the credentials", err)
		}
		now.Store(&answer{password: "two"})
		mustAcquire(t, n, alice, 1)
	})
	if _, err := node.Dial("redis://billing:s3cret@h", node.WithCredentials(func(context.Context) (node.Credentials, error) { return node.Credentials{}, nil })); !errors.Is(err, quorumlock.ErrMisuse) {
		t.Errorf("credentials in two places: %v", err)
	}
}
