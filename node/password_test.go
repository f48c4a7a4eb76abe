package node_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
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
	n, err := node.Dial(rawURL)
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
	show(testkit.Err(n.Acquire(t.Context(), "x", alice, ttl, 1)))
	show(testkit.Err(n.Inspect(t.Context(), "x")))
	logger := slog.New(slog.NewTextHandler(&shown, nil))
	show(testkit.Err(n.Mutex("x", quorumlock.WithLogger(logger), quorumlock.WithWait(time.Second)).Lock(t.Context())))
	if !strings.Contains(shown.String(), "trying again") {
		t.Errorf("nothing was logged:\n%s", shown.String())
	}
	return shown.String()
}

func TestAWrongPasswordIsNotShown(t *testing.T) {
	t.Parallel()
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
			return over(t, redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Username: "billing", Password: "s3cret", Dialer: echo.dial}))
		},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			if shown := whatIsShown(t, connect(t)); strings.Contains(shown, "s3cret") {
				t.Error(shown)
			}
			t.Cleanup(func() { time.Sleep(2 * time.Second) }) // for go-redis's redial to see that the client is closed
		})
	}
}

func TestMissingPasswordIsNamed(t *testing.T) {
	for _, said := range []string{"NOAUTH Authentication required.", "ERR Protocol error: unauthenticated multibulk length"} {
		testkit.Run(t, said, func(t *testing.T) {
			n := dial(t, "redis://h", node.WithDialer(scripted("-"+said+"\r\n").dial))
			says(t, said, testkit.Err(n.Acquire(t.Context(), "x", alice, ttl, 1)), "the node wants a password")
		})
	}
}

// Each new connection asks for the credentials, so a node outlives their rotation.
func TestCredentialsMayChange(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		secret := &tokens{user: "billing"}
		n := dial(t, "redis://h", node.WithDialer(s.DialContext), node.WithCredentials(secret.get))
		for _, password := range []string{"one", "two"} {
			secret.set(password, nil)
			s.Redis.RequireUserAuth("billing", password)
			s.Restart(true) // its connections end
			settle(time.Second)
			mustAcquire(t, n, alice, 1)
		}
		secret.set("", io.ErrUnexpectedEOF)
		s.Restart(true)
		settle(time.Second)
		_, err := n.Acquire(t.Context(), "x", alice, ttl, 1)
		if !errors.Is(err, io.ErrUnexpectedEOF) || !wire.IsUnsent(err) {
			t.Errorf("error %v, want that of the credentials", err)
		}
		secret.set("two", nil)
		settle(10 * time.Millisecond) // the next connect waits this long after a failure
		mustAcquire(t, n, alice, 1)
	})
	err := testkit.Err(node.Dial("redis://billing:s3cret@h", node.WithCredentials(new(tokens).get)))
	testkit.Is(t, err, quorumlock.ErrMisuse, "credentials in two places")
}
